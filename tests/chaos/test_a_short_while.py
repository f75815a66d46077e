"""Every fault once, in the order of one seed, under a steady load."""

import random
from datetime import timedelta
from pathlib import Path

import pytest

from sends.lifecycle import claim
from tests.chaos.faults import FAULTS
from tests.chaos.world import world_in

SEED = 7


@pytest.mark.django_db(transaction=True)
def test_no_fault_makes_it_send_twice_or_lose_anything(
    tmp_path: Path, database_url: str, process_env: dict[str, str]
) -> None:
    claim.installation_id.cache_clear()
    env = process_env | {"OUTBOX_DATABASE_URL": database_url}
    with world_in(tmp_path, env, SEED) as world:
        with world.under_load(timedelta(seconds=0.3), random.Random(SEED)):
            for fault in world.chance.sample(FAULTS, len(FAULTS)):
                fault(world)
                world.witness.look()
        world.comes_to_rest()
        assert world.offered
    claim.installation_id.cache_clear()
