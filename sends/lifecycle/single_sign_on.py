"""Who an identity provider says somebody is, and the roles that follow from it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from allauth.socialaccount.models import SocialAccount
from django.db import transaction

from sends.lifecycle import audit
from sends.lifecycle.people import end_ways_in
from sends.lifecycle.refusals import NotAllowed
from sends.models import (
    ClaimedRole,
    IdentityProvider,
    Membership,
    Person,
    Role,
    Tenant,
    database_now,
)
from sends.providers.credentials import resolve
from sends.rules.addresses import domain_of, has_plain_letters, of_person


@dataclass(frozen=True)
class Claims:
    """What a provider says, its signature checked."""

    subject: str  # who it is there, whatever else changes
    email: str
    is_verified: bool
    values: frozenset[str]  # of the claim that names roles


def secret_of(provider: IdentityProvider) -> str:
    return resolve(provider.client_secret).strip()


def arrive(provider: IdentityProvider, claims: Claims) -> Person | None:
    """The person, with the roles that the claims give now; None for whom they give none.

    Roles are given and taken in those tenants alone that name the provider, and are then as it
    says, even those of a last admin. Whoever was not known by the subject is from now on; if it
    is somebody who was matched by the address, every other way in ends but that for emergencies:
    it may be of somebody's making who never had the address.
    """
    with transaction.atomic():
        now = database_now()
        # Of two first sign-ins at once the second finds what the first has made.
        list(IdentityProvider.objects.select_for_update().filter(pk=provider.pk))
        accounts = SocialAccount.objects.filter(provider=provider.slug, uid=claims.subject)
        known = Person.objects.filter(pk__in=accounts.values("user")).first()
        email = of_person(claims.email)
        _require_spoken_for(provider, email, claims.is_verified)
        person = known or _by_address(provider, email)
        is_matched = known is None and person is not None
        if person is not None and not person.is_active:
            raise NotAllowed(f"The account of {person.email} is switched off.")
        roles = _roles(provider, claims.values)
        if person is None and roles:
            person = Person.objects.create_user(email)
        if person is not None:
            _give(person, provider, roles, now, is_matched=is_matched)
            if is_matched and roles:
                end_ways_in(person)
            if known is None and roles:
                SocialAccount.objects.create(
                    user=person, provider=provider.slug, uid=claims.subject
                )
    return person if roles else None


def _require_spoken_for(provider: IdentityProvider, email: str, is_verified: bool) -> None:
    if not all(email.rpartition("@")) or not is_verified:
        raise NotAllowed(f"{provider} has not verified your address.")
    if not has_plain_letters(email):
        raise NotAllowed(f"{email} has letters that no address of a person here has.")
    if provider.email_domains and domain_of(email) not in provider.email_domains:
        raise NotAllowed(f"{provider} does not speak for addresses of {domain_of(email)} here.")


def _by_address(provider: IdentityProvider, email: str) -> Person | None:
    person = Person.objects.at(email)
    if person is not None and not provider.matches_address:
        raise NotAllowed(f"{email} has an account here that {provider} may not sign in to.")
    return person


def _roles(provider: IdentityProvider, values: Iterable[str]) -> dict[Tenant, Role]:
    """The highest role in each tenant that names one of these values."""
    found: dict[Tenant, Role] = {}
    claimed = ClaimedRole.objects.filter(provider=provider, value__in=list(values))
    for row in claimed.select_related("tenant"):
        found[row.tenant] = max(found.get(row.tenant, Role.VIEWER), Role(row.role))
    return found


def _give(
    person: Person,
    provider: IdentityProvider,
    roles: dict[Tenant, Role],
    now: datetime,
    *,
    is_matched: bool,
) -> None:
    governed = Tenant.objects.filter(claimed_roles__provider=provider).distinct()
    for tenant in governed.order_by("pk"):
        members = Membership.objects.select_for_update().filter(tenant=tenant, person=person)
        membership, role = members.first(), roles.get(tenant)
        before = Role(membership.role) if membership else None
        if role == before and not (role and is_matched):
            continue
        if role is None:
            members.delete()
        else:
            Membership.objects.update_or_create(
                tenant=tenant, person=person, defaults={"role": role}
            )
        audit.record(
            tenant=tenant,
            actor=f"provider:{provider.slug}",
            verb="map_role",
            target=f"person:{person.email}",
            facts={"before": _word(before), "after": _word(role)}
            | ({"matched_by": "address"} if is_matched else {}),
            now=now,
        )


def _word(role: Role | None) -> str:
    return role.label.lower() if role else "none"
