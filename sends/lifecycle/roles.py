"""Whether a person may decide something in a tenant: asked here, whatever a screen has shown."""

from sends.lifecycle.refusals import Invalid, NotAllowed
from sends.models import Membership, Person, Role, Tenant

DOES = {
    Role.VIEWER: "read",
    Role.APPROVER: "decide about emails and stop sending",
    Role.OPERATOR: "settle, requeue, cancel and resume",
    Role.ADMIN: "close anomalies and decide about people, tokens and the set-up",
}


def require_role(person: Person, tenant: Tenant, role: Role) -> Membership:
    """The person's membership as the database has it now, or NotAllowed.

    Read anew, because the person was loaded when the request began, and may have been switched
    off or given another role since.
    """
    membership: Membership | None = (
        Membership.objects.filter(tenant=tenant, person=person)
        .select_related("person")
        .order_by("pk")
        .first()
    )
    if membership is None or not membership.person.is_active:
        raise NotAllowed(f"You no longer have a role in {tenant}.")
    if not membership.may(role):
        raise NotAllowed(
            f"To {DOES[role]}, one has to be {role.label.lower()} in {tenant}; "
            f"you are {Role(membership.role).label.lower()}."
        )
    return membership


def require_reason(reason: str, *, what: str) -> str:
    """The reason without white space around it, or Invalid where there is none."""
    reason = reason.strip()
    if not reason:
        raise Invalid(f"Give a reason {what}; it is kept in the audit log.")
    return reason


def require_any_role(person: Person, role: Role) -> None:
    """For what concerns the whole installation: the role in any of its tenants, or NotAllowed."""
    memberships = Membership.objects.filter(person=person, person__is_active=True)
    if not memberships.filter(role__gte=role).exists():
        raise NotAllowed(f"To {DOES[role]} everywhere, one has to be {role.label.lower()}.")
