"""The sandboxes of a module, one with a contract and one without, and a stage for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sends.lifecycle import claim
from tests.promises.stage import Stage
from tests.sandboxes import Sandbox
from tests.sending import sandbox_with


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[dict[str, Sandbox]]:
    with (
        sandbox_with("replay", deliver_after=0) as replay,
        sandbox_with("none", deliver_after=0) as none,
    ):
        yield {"replay": replay, "none": none}


@pytest.fixture(params=["replay", "none"])
def contract(request: pytest.FixtureRequest) -> str:
    """What the provider promises about a repeated key: each test runs with both."""
    return str(request.param)


@pytest.fixture
def stage(
    sandboxes: dict[str, Sandbox],
    contract: str,
    transactional_db: None,
    database_url: str,
    process_env: dict[str, str],
    tmp_path: Path,
) -> Iterator[Stage]:
    """Set `stage.policy` and `stage.account` before anything is proposed."""
    # Each test has an installation of its own; the product never sees it change.
    claim.installation_id.cache_clear()
    sandboxes[contract].reset()
    env = process_env | {"OUTBOX_DATABASE_URL": database_url}
    stage = Stage(sandboxes[contract], contract, env, tmp_path)
    yield stage
    stage.close()
    claim.installation_id.cache_clear()
