"""Harms a running installation for a while, and judges it by its providers' own journals.

    make chaos MINUTES=5 SEED=7                        SQLite
    OUTBOX_DATABASE_URL=postgres://… make chaos …      an empty PostgreSQL database

Prints what was offered, what was done, and what became of it; fails at the first promise that does
not hold. One seed chooses the same faults in the same order, not the same moments.
"""

import argparse
import os
import random
import tempfile
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sends.models import Tenant


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--every", type=float, default=0.2, help="seconds from email to email")
    given = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="outbox-chaos-") as name:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "outbox_admin.settings",
            "OUTBOX_DATA_DIR": name,
            "OUTBOX_SECRET_KEY": "this key guards nothing that lasts longer than a few minutes",
            "OUTBOX_LOG_LEVEL": "WARNING",
        }
        os.environ.setdefault("OUTBOX_DATABASE_URL", f"sqlite:///{name}/outbox.sqlite3")
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        run(given, Path(name))


def run(given: argparse.Namespace, folder: Path) -> None:
    from django.db import connection

    from tests.chaos.faults import FAULTS
    from tests.chaos.world import world_in

    print(f"{connection.vendor}, seed {given.seed}, {given.minutes:g} minutes", flush=True)
    done: Counter[str] = Counter()
    with world_in(folder, dict(os.environ), given.seed) as world:
        ends_at = time.monotonic() + given.minutes * 60
        with world.under_load(timedelta(seconds=given.every), random.Random(given.seed)):
            while time.monotonic() < ends_at:
                time.sleep(world.chance.uniform(0.2, 3))
                fault = world.chance.choice(FAULTS)
                print(f"{time.strftime('%H:%M:%S')} {words_of(fault.__name__)}", flush=True)
                fault(world)
                done[fault.__name__] += 1
                world.witness.look()
        rest = world.comes_to_rest()
        print(f"\n{world.offered} emails offered; at rest {rest:.1f} s after the last one")
        for name, count in done.most_common():
            print(f"  {count:4} times {words_of(name)}")
        for stage in world.stages:
            tell(stage.contract, stage.tenant, stage.sandbox.stats()["accepted"])
    print("Nothing was sent twice, and nothing was lost.")


def tell(contract: str, tenant: "Tenant", accepted: int) -> None:
    from sends.models import SendIntent
    from sends.rules.statuses import Status

    intents = SendIntent.objects.filter(tenant=tenant)
    ended = Counter(intents.values_list("status", flat=True))
    print(f"contract {contract!r}: {intents.count()} emails, {accepted} accepted by the provider")
    for status, count in ended.most_common():
        print(f"  {count:4} {status}")
    unsure = intents.filter(status=Status.UNCERTAIN).values_list("first_recipient", flat=True)
    words = Counter(recipient.partition("+")[0] for recipient in unsure)
    if words:
        print("       uncertain:", ", ".join(f"{count} {word}" for word, count in words.items()))


def words_of(name: str) -> str:
    return name.replace("_", " ")


if __name__ == "__main__":
    main()
