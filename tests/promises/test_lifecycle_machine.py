"""All promises at once: whatever happens in whatever order, after each step each of them holds.

`pytest --hypothesis-profile=deep tests/promises/test_lifecycle_machine.py` looks for longer, and
elsewhere each time.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.promises.machine import Lifecycle, world

pytestmark = pytest.mark.django_db

QUICK = settings(
    max_examples=20,
    stateful_step_count=30,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def machine(db: None) -> Iterator[type[Lifecycle]]:
    with world() as found:
        yield type("Machine", (Lifecycle,), {"world": found})


def test_every_promise_holds_after_every_step(machine: type[Lifecycle]) -> None:
    deep = settings.get_current_profile_name() == "deep"
    run_state_machine_as_test(machine, settings=settings.default if deep else QUICK)


@pytest.fixture
def life(machine: type[Lifecycle]) -> Iterator[Lifecycle]:
    """One life in which nobody has to approve, for a course that was found wanting once."""
    life = machine()
    life.begin(0, 0, second_operator=True, max_attempts=40, begun=[], wrong=[])
    yield life
    life.all_promises_hold()
    life.teardown()


def test_what_became_too_late_since_its_claim_is_not_dispatched(life: Lifecycle) -> None:
    none, soon = timedelta(), timedelta(seconds=30)
    life.propose_with_times(agent=1, to=0, not_before=none, time_left=soon, trigger=11)
    life.claim(at_most=1)
    life.time_passes(timedelta(seconds=40))

    life.dispatch(how_many=1)

    assert life.going == []
