"""All promises at once: whatever happens in whatever order, after each step each of them holds.

`pytest --hypothesis-profile=deep tests/promises/test_lifecycle_machine.py` looks for longer, and
elsewhere each time.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.promises.machine import Lifecycle, world

pytestmark = pytest.mark.django_db

QUICK = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
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
