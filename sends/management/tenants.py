"""The tenants that a command is about."""

from django.core.management import CommandError

from sends.models import Tenant


def tenants_named(slug: str) -> list[Tenant]:
    """The tenant of this slug, or all of them for none; CommandError where there is no such."""
    tenants = list(Tenant.objects.order_by("slug"))
    if not slug:
        return tenants
    found = [tenant for tenant in tenants if tenant.slug == slug]
    if not found:
        known = ", ".join(tenant.slug for tenant in tenants) or "none"
        raise CommandError(f"There is no tenant {slug}. There are: {known}.")
    return found


def one_tenant(slug: str) -> Tenant:
    """As `tenants_named`, where it has to be one: no name will do only where there is one."""
    found = tenants_named(slug)
    if len(found) != 1:
        known = ", ".join(tenant.slug for tenant in found) or "none"
        raise CommandError(f"Say which with --tenant. There are: {known}.")
    return found[0]
