"""Whose bearer token it is, and when it was last used."""

from datetime import datetime, timedelta

from django.db.models import Q

from sends.models import Token
from sends.rules.keys import sha256

# Often enough to see a token that is no longer used, and no write for every request.
USED_EVERY = timedelta(minutes=1)


def holder(secret: str, *, now: datetime) -> Token | None:
    """The token in force with this secret, with its agent and tenant; None for any other."""
    standing = Token.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None)
    token: Token | None = (
        standing.select_related("agent__sender", "tenant")
        .filter(digest=sha256(secret.encode("utf-8", "surrogatepass")))
        .first()
    )
    if token is not None and (token.last_used_at is None or token.last_used_at < now - USED_EVERY):
        Token.objects.filter(pk=token.pk).update(last_used_at=now)
    return token
