"""What admins decide about people, when two do so at once."""

import pytest

from sends.lifecycle import people
from sends.lifecycle.refusals import Refused
from sends.models import AuditEntry, Membership, Person, Role
from tests.factories import make_person, make_tenant
from tests.lifecycle.races import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def test_of_two_admins_who_lower_each_other_one_stays():
    tenant = make_tenant()
    one, two = (make_person(tenant, Role.ADMIN) for _ in range(2))

    def lower(person, by):
        return lambda: people.change_role(person, role=Role.VIEWER, tenant=tenant, by=by)

    answers = at_once(lower(one, two), lower(two, one))
    assert len([answer for answer in answers if isinstance(answer, Refused)]) == 1
    assert Membership.objects.filter(tenant=tenant, role=Role.ADMIN).count() == 1


def test_of_two_admins_who_switch_each_other_off_one_stays():
    tenant = make_tenant()
    one, two = (make_person(tenant, Role.ADMIN) for _ in range(2))

    def switch_off(person, by):
        return lambda: people.deactivate(person, tenant=tenant, by=by)

    at_once(switch_off(one, two), switch_off(two, one))
    assert Person.objects.filter(is_active=True).count() == 1


def test_a_link_that_two_use_at_once_lets_one_in():
    tenant = make_tenant()
    admin = make_person(tenant, Role.ADMIN)
    link = people.invite("new@example.org", role=Role.VIEWER, tenant=tenant, by=admin).link
    token = link.strip("/").rpartition("/")[2]
    answers = at_once(*(lambda: people.accept(token, password="correct horse") for _ in range(2)))
    assert len([answer for answer in answers if isinstance(answer, Person)]) == 1
    assert Person.objects.filter(email="new@example.org").count() == 1
    assert AuditEntry.objects.filter(verb="accept_invitation").count() == 1


def test_who_is_no_longer_admin_decides_nothing_more():
    tenant = make_tenant()
    admin, other = make_person(tenant, Role.ADMIN), make_person(tenant, Role.ADMIN)
    people.remove(admin, tenant=tenant, by=other)
    with pytest.raises(Refused):
        people.invite("new@example.org", role=Role.VIEWER, tenant=tenant, by=admin)
