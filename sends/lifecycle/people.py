"""Who belongs to a tenant, in which role, and how they get in: what its admins decide."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.db import transaction

from sends.lifecycle import audit
from sends.lifecycle.letters import invitation_link, reset_link
from sends.lifecycle.refusals import NotAllowed, NotPossible, TooLate
from sends.lifecycle.roles import require_role
from sends.models import Invitation, Membership, Person, Role, Tenant, database_now
from sends.rules.addresses import has_plain_letters, of_person
from sends.rules.keys import sha256

INVITED_FOR = timedelta(days=7)


@dataclass(frozen=True)
class Invited:
    """An invitation and its link in clear: only the digest of what is secret in it is kept."""

    invitation: Invitation
    link: str = field(repr=False)


def invite(email: str, *, role: Role, tenant: Tenant, by: Person) -> Invited:
    """A link by which whoever reads this address joins; an earlier one to it ends.

    Whether the address has an account elsewhere shows on the page of the link alone.
    """
    with transaction.atomic():
        now = database_now()
        _locked(tenant)
        require_role(by, tenant, Role.ADMIN)
        email = of_person(email)
        if not has_plain_letters(email):
            raise NotPossible("Before the @, the address of a person is of ASCII letters.")
        if Membership.objects.filter(tenant=tenant, person__email=email).exists():
            raise NotPossible(f"{email} belongs to {tenant} already; change the role instead.")
        Invitation.objects.pending(now).filter(tenant=tenant, email=email).update(revoked_at=now)
        token = secrets.token_urlsafe(32)
        invitation = Invitation.objects.create(
            tenant=tenant,
            email=email,
            role=role,
            digest=_digest(token),
            invited_by=by,
            created_at=now,
            expires_at=now + INVITED_FOR,
        )
        _record(tenant, by, "invite", email, {"role": role.label.lower()}, now)
    return Invited(invitation, invitation_link(token))


def revoke(invitation: Invitation, *, by: Person) -> None:
    with transaction.atomic():
        now = database_now()
        tenant = invitation.tenant
        require_role(by, tenant, Role.ADMIN)
        if not Invitation.objects.pending(now).filter(pk=invitation.pk).update(revoked_at=now):
            raise TooLate(f"The invitation of {invitation.email} is over already.")
        _record(tenant, by, "revoke_invitation", invitation.email, {}, now)


def invitation_of(token: str) -> Invitation | None:
    """The pending invitation of this link, which may no longer hold; looking uses nothing up."""
    pending = Invitation.objects.pending(database_now()).filter(digest=_digest(token))
    found: Invitation | None = pending.select_related("tenant", "invited_by").first()
    return found


def accept(token: str, *, person: Person | None = None, password: str = "") -> Person:
    """Use the link up: `person`, who is signed in with its address, joins; or a new one, who
    gets `password`. What somebody promised who is no longer admin there counts no more."""
    with transaction.atomic():
        now = database_now()
        pending = Invitation.objects.pending(now).select_related("tenant", "invited_by")
        invitation = pending.filter(digest=_digest(token)).first()
        taken = pending.filter(digest=_digest(token)).update(accepted_at=now)
        if invitation is None or not taken:
            raise TooLate("This invitation was used, taken back, or is older than 7 days.")
        _require_still_admin(invitation)
        known = Person.objects.at(invitation.email)
        if person is None and known is not None:
            raise NotAllowed(f"{invitation.email} has an account; sign in with it first.")
        if person is not None and person != known:
            raise NotAllowed(f"This invitation is for {invitation.email}, and you are {person}.")
        if person is None:
            person = Person.objects.create_user(invitation.email, password)
        Membership.objects.get_or_create(
            tenant=invitation.tenant, person=person, defaults={"role": invitation.role}
        )
        role = Role(invitation.role).label.lower()
        _record(invitation.tenant, person, "accept_invitation", person.email, {"role": role}, now)
    return person


def change_role(person: Person, *, role: Role, tenant: Tenant, by: Person) -> None:
    with transaction.atomic():
        now = database_now()
        membership = _decided_about(person, tenant, by)
        before = Role(membership.role)
        if before == role:
            return
        if before is Role.ADMIN:
            _require_another_admin(tenant, person, "lowered")
        membership.role = role
        membership.save(update_fields=["role"])
        facts = {"before": before.label.lower(), "after": role.label.lower()}
        _record(tenant, by, "change_role", person.email, facts, now)


def remove(person: Person, *, tenant: Tenant, by: Person) -> None:
    """Out of this tenant; other tenants, and the person's account, stay as they are."""
    with transaction.atomic():
        now = database_now()
        membership = _decided_about(person, tenant, by)
        if membership.role == Role.ADMIN:
            _require_another_admin(tenant, person, "removed")
        facts = {"role": Role(membership.role).label.lower()}
        membership.delete()
        _record(tenant, by, "remove_person", person.email, facts, now)


def deactivate(person: Person, *, tenant: Tenant, by: Person) -> None:
    """Whoever is signed in as this person is so no longer, and nobody signs in again."""
    with transaction.atomic():
        now = database_now()
        _decided_about(person, tenant, by)
        _require_charge_of(person, by)
        Person.objects.filter(pk=person.pk).update(is_active=False)
        _end_sessions(person)
        _record(tenant, by, "deactivate_person", person.email, {}, now)


def reactivate(person: Person, *, tenant: Tenant, by: Person) -> None:
    with transaction.atomic():
        now = database_now()
        _decided_about(person, tenant, by)
        _require_charge_of(person, by)
        Person.objects.filter(pk=person.pk).update(is_active=True)
        _record(tenant, by, "reactivate_person", person.email, {}, now)


def reset_second_factor(person: Person, *, tenant: Tenant, by: Person) -> None:
    """Apps, passkeys and recovery codes of this person no longer count."""
    with transaction.atomic():
        now = database_now()
        _decided_about(person, tenant, by)
        _require_charge_of(person, by)
        Authenticator.objects.filter(user=person).delete()
        _end_sessions(person)
        _record(tenant, by, "reset_second_factor", person.email, {}, now)


def end_sessions(person: Person, *, tenant: Tenant, by: Person) -> None:
    with transaction.atomic():
        now = database_now()
        _decided_about(person, tenant, by)
        _require_charge_of(person, by)
        _end_sessions(person)
        _record(tenant, by, "end_sessions", person.email, {}, now)


def new_password_link(person: Person, *, tenant: Tenant, by: Person) -> str:
    """A link to hand over, where the installation sends no mail.

    Whoever makes it could use it. So there is none for whom a provider knows, who may have a role
    in further tenants from one sign-in to the next, nor for whom the configuration names for
    emergencies.
    """
    with transaction.atomic():
        now = database_now()
        _decided_about(person, tenant, by)
        _require_charge_of(person, by)
        _require_known_by_password(person)
        _record(tenant, by, "reset_password", person.email, {}, now)
    return reset_link(person)


def end_ways_in(person: Person) -> None:
    """What was set up to sign in as this person no longer counts, and whoever is in is out.

    Password and second factors of who has `break_glass` stay: they have to serve when the
    provider does not, and the password alone must never do.
    """
    if not person.break_glass:
        person.set_unusable_password()
        person.save(update_fields=["password"])
        Authenticator.objects.filter(user=person).delete()
    _end_sessions(person)


def _require_still_admin(invitation: Invitation) -> None:
    try:
        require_role(invitation.invited_by, invitation.tenant, Role.ADMIN)
    except NotAllowed:
        raise TooLate(
            f"{invitation.invited_by} is no longer admin of {invitation.tenant};"
            " ask who is for another invitation."
        ) from None


def _locked(tenant: Tenant) -> None:
    """Of two admins who decide about each other at once, the second is read anew."""
    list(Membership.objects.select_for_update().filter(tenant=tenant).order_by("pk"))


def _decided_about(person: Person, tenant: Tenant, by: Person) -> Membership:
    _locked(tenant)
    require_role(by, tenant, Role.ADMIN)
    found = Membership.objects.filter(tenant=tenant, person=person).first()
    if found is None:
        raise TooLate(f"{person.email} no longer belongs to {tenant}.")
    return found


def _require_another_admin(tenant: Tenant, person: Person, what: str) -> None:
    admins = Membership.objects.filter(tenant=tenant, role=Role.ADMIN, person__is_active=True)
    if not admins.exclude(person=person).exists():
        raise NotPossible(
            f"{person.email} is the last admin of {tenant} and cannot be {what};"
            " make somebody else an admin first."
        )


def _require_charge_of(person: Person, by: Person) -> None:
    """What is about the account itself holds in every tenant, so an admin of each decides it."""
    if person == by:
        raise NotPossible("About your own account another admin decides.")
    led = Membership.objects.filter(person=by, role=Role.ADMIN).values("tenant")
    if Membership.objects.filter(person=person).exclude(tenant__in=led).exists():
        raise NotAllowed(
            f"The account of {person.email} is not yours alone to decide about."
            " You can change the role here, or remove it."
        )


def _require_known_by_password(person: Person) -> None:
    way_out = f"Whoever runs this installation can set one: manage.py changepassword {person.email}"
    if person.break_glass:
        raise NotPossible(
            f"{person.email} gets in when all else fails, so no admin sets that password. {way_out}"
        )
    if not person.may_use_password():
        raise NotPossible("Passwords let nobody in here; signing in is an identity provider's.")
    if SocialAccount.objects.filter(user=person).exists():
        raise NotPossible(
            f"{person.email} signs in through an identity provider; a password made here would"
            f" open what that gives elsewhere as well. {way_out}"
        )


def _end_sessions(person: Person) -> None:
    for session in UserSession.objects.filter(user=person):
        session.end()


def _record(
    tenant: Tenant, by: Person, verb: str, email: str, facts: Mapping[str, Any], now: datetime
) -> None:
    audit.record(
        tenant=tenant, actor=str(by), verb=verb, target=f"person:{email}", facts=facts, now=now
    )


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass"))
