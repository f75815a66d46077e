"""Who may do what: the membership under which a signed-in person acts."""

from typing import cast

from django.http import HttpRequest

from sends.models import Membership


def membership_of(request: HttpRequest) -> Membership | None:
    """The role in which this request acts; None for who is not signed in or has no role.

    Who belongs to several tenants acts in the one joined first. Asked once a request.
    """
    if not hasattr(request, "_membership"):
        found = None
        if request.user.is_authenticated:
            person = request.user
            found = person.memberships.select_related("tenant").order_by("id").first()
            if found is not None:
                found.person = person
        request._membership = found  # type: ignore[attr-defined]
    return cast("Membership | None", getattr(request, "_membership", None))
