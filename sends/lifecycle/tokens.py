"""Agents' tokens: made, taken back, and whose one is."""

import secrets
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q

from sends.lifecycle import audit
from sends.lifecycle.refusals import NotPossible, TooLate
from sends.lifecycle.roles import require_role
from sends.models import Agent, Person, Role, Token, database_now
from sends.rules.keys import sha256

# Often enough to see a token that is no longer used, and no write for every request.
USED_EVERY = timedelta(minutes=1)


def holder(secret: str, *, now: datetime) -> Token | None:
    """The token in force with this secret, with its agent and tenant; None for any other."""
    standing = Token.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None)
    token: Token | None = (
        standing.select_related("agent__sender", "agent__tenant", "tenant")
        .filter(digest=sha256(secret.encode("utf-8", "surrogatepass")))
        .first()
    )
    if token is not None and (token.last_used_at is None or token.last_used_at < now - USED_EVERY):
        Token.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def new_secret() -> str:
    return f"obx_{secrets.token_urlsafe(32)}"


def issue(
    agent: Agent, *, name: str, scopes: Collection[str], expires_at: datetime | None, by: Person
) -> tuple[Token, str]:
    """A new token and its secret, of which only the digest is kept."""
    secret = new_secret()
    with transaction.atomic():
        now = database_now()
        require_role(by, agent.tenant, Role.ADMIN)
        try:
            with transaction.atomic():
                token = Token.objects.create(
                    tenant=agent.tenant,
                    agent=agent,
                    name=name,
                    digest=sha256(secret.encode()),
                    hint=secret[-4:],
                    scopes=sorted(scopes),
                    expires_at=expires_at,
                )
        except IntegrityError:
            words = f"{agent} has a token {name} already; give this one another name."
            raise NotPossible(words) from None
        _record(token, by, "issue_token", now)
    return token, secret


def revoke(token: Token, *, by: Person) -> None:
    """From the next request on it lets nobody in."""
    with transaction.atomic():
        now = database_now()
        require_role(by, token.tenant, Role.ADMIN)
        if not Token.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now):
            raise TooLate(f"The token {token.name} of {token.agent} was taken back already.")
        _record(token, by, "revoke_token", now)


def _record(token: Token, by: Person, verb: str, now: datetime) -> None:
    audit.record(
        tenant=token.tenant,
        actor=str(by),
        verb=verb,
        target=f"token:{token.agent}/{token.name}",
        facts={"scopes": token.scopes, "hint": token.hint},
        now=now,
    )
