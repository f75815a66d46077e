"""A deciding form that is sent twice decides once."""

from typing import Any

import pytest

from sends.lifecycle.refusals import Invalid, NotPossible
from sends.lifecycle.results import once
from sends.models import ActionResult, Person, Tenant, database_now, new_id
from tests.factories import make_person, make_tenant
from tests.lifecycle.races import at_once


class Counted:
    """Something done, and how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> dict[str, Any]:
        self.times += 1
        return {"times": self.times}


@pytest.fixture
def person(db: None) -> Person:
    return make_person(make_tenant())


def test_the_second_click_gets_the_first_answer(person: Person):
    do, action_id = Counted(), new_id()
    assert once(person, action_id, "approve", database_now(), do) == ({"times": 1}, False)
    assert once(person, action_id, "approve", database_now(), do) == ({"times": 1}, True)
    assert do.times == 1


def test_another_form_and_another_person_are_answered_anew(person: Person):
    do, action_id = Counted(), new_id()
    once(person, action_id, "approve", database_now(), do)
    other = make_person(make_tenant())
    assert once(other, action_id, "approve", database_now(), do)[0] == {"times": 2}
    assert once(person, new_id(), "approve", database_now(), do)[0] == {"times": 3}


def test_an_id_that_decided_something_else_is_refused(person: Person):
    action_id = new_id()
    once(person, action_id, "approve", database_now(), Counted())
    with pytest.raises(Invalid, match="approve"):
        once(person, action_id, "reject", database_now(), Counted())


def test_a_refusal_is_not_kept_but_what_it_wrote_is(person: Person):
    action_id = new_id()

    def refuse() -> dict[str, Any]:
        Tenant.objects.create(slug="written", name="Written before the refusal")
        raise NotPossible("not now")

    with pytest.raises(NotPossible):
        once(person, action_id, "approve", database_now(), refuse)
    assert Tenant.objects.filter(slug="written").exists()
    assert once(person, action_id, "approve", database_now(), Counted()) == ({"times": 1}, False)


def test_what_fails_is_kept_nowhere(person: Person):
    action_id = new_id()

    def fail() -> dict[str, Any]:
        Tenant.objects.create(slug="written", name="Written before the failure")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        once(person, action_id, "approve", database_now(), fail)
    assert not ActionResult.objects.exists()
    assert not Tenant.objects.filter(slug="written").exists()


@pytest.mark.django_db(transaction=True)
def test_of_two_at_the_same_moment_the_second_gets_the_first_answer():
    person, do, action_id = make_person(make_tenant()), Counted(), new_id()

    def send() -> tuple[dict[str, Any], bool]:
        return once(person, action_id, "approve", database_now(), do)

    answers = at_once(send, send, send)
    assert sorted(repeat for _, repeat in answers) == [False, True, True]
    assert [result for result, _ in answers] == [{"times": 1}] * 3
    assert do.times == 1
