"""Who is calling: a bearer token, and what it may do."""

from django.http import HttpRequest
from ninja.security import HttpBearer

from sends import logs
from sends.api.allowances import count
from sends.api.problems import Problem
from sends.lifecycle import tokens
from sends.models import Agent, Scope, Token, database_now


class Bearer(HttpBearer):
    """Lets a token in that is in force, has the scope, and has not asked too often.

    Its `Token` becomes `request.auth`.
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self.scope = scope

    def authenticate(self, request: HttpRequest, token: str) -> Token | None:
        found = tokens.holder(token, now=database_now())
        if found is not None:
            count(request, str(found.pk))
        if found is None:
            return None
        logs.about(tenant=found.tenant_id, agent=found.agent_id)
        if self.scope not in found.scopes:
            raise Problem(
                403,
                "missing_scope",
                f"This needs a token with the scope {self.scope}; "
                f"this one has {', '.join(found.scopes) or 'none'}.",
            )
        return found


def agent_of(request: HttpRequest) -> Agent:
    """The agent whose token it is, behind a `Bearer`."""
    token: Token = request.auth  # type: ignore[attr-defined]
    return token.agent
