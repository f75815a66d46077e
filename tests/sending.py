"""A sandbox provider, and agents whose account leads to it, for tests that really send."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from sends.models import Agent, Tenant
from tests.factories import make_account, make_agent, make_sender, make_tenant
from tests.sandboxes import Sandbox


def make_agent_of(
    sandbox: Sandbox, tenant: Tenant | None = None, *, contract: str = "replay", **account: Any
) -> Agent:
    """An agent that sends through this sandbox, known to have `contract`."""
    account.setdefault("request_deadline", timedelta(seconds=5))
    account.setdefault("credential", f"file:{credential_file(sandbox)}")
    options = {"contract": contract} | account.pop("options", {})
    tenant = tenant or make_tenant()
    return make_agent(
        make_sender(make_account(tenant, base_url=sandbox.url, options=options, **account))
    )


def credential_file(sandbox: Sandbox) -> Path:
    path = Path(sandbox.folder) / "credential"
    path.write_text("sandbox_test_key")
    return path


@contextmanager
def sandbox_with(contract: str, **options: Any) -> Iterator[Sandbox]:
    with Sandbox.start(contract=contract, sync="off", **options) as sandbox:
        yield sandbox
