"""An installation under load: two workers, a provider with a contract and one without."""

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from django.db import Error, connection

from sends.lifecycle import review
from sends.lifecycle.refusals import Refused
from sends.models import Attempt, SendIntent
from sends.rules.outcomes import DOUBTFUL
from sends.rules.statuses import Status
from tests.promises.stage import UNDER_WAY, Stage, WorkerProcess, await_that
from tests.promises.witness import Witness
from tests.sending import sandbox_with

LEASE = timedelta(seconds=5)
DEADLINE = timedelta(seconds=2)
MAX_ATTEMPTS = 8
CONTRACTS = ("replay", "none")
WORKERS = 2
# What happens to most email, and what goes wrong at the provider by itself.
WORDS = (
    *(("delivered",) * 8),
    *("lost-answer", "cut-answer", "accept-reset", "reset-before", "reset-after", "http-502-taken"),
    *("slow", "drip", "busy", "busy-past", "busy-503", "http-500", "key-in-progress"),
    *("no-proof", "cut-json", "non-utf8", "html-200", "bad-request", "rejected-body"),
)
Made = TypeVar("Made")
# Longer than all that a fault may take, and what is in flight then until its lease is over.
REST_SECONDS = 240


class World:
    """What a fault may touch. `chance` is for the faults alone, so that a seed repeats them."""

    def __init__(self, stages: list[Stage], chance: random.Random) -> None:
        self.stages = stages
        self.chance = chance
        self.workers: list[WorkerProcess] = []
        self.offered = 0
        self.witness = Witness(*(stage.sandbox for stage in stages))
        for number in range(WORKERS):
            self.start_worker(number)

    def a_stage(self) -> Stage:
        return self.chance.choice(self.stages)

    def a_worker(self) -> WorkerProcess:
        return self.chance.choice(self.workers)

    def start_worker(self, number: int) -> None:
        """On a machine of its own, whose folder lasts."""
        stage = self.stages[0]
        process = stage.worker(data_dir=stage.folder / f"machine-{number}")
        self.workers[number : number + 1] = [process]

    @contextmanager
    def under_load(self, every: timedelta, chance: random.Random) -> Iterator[None]:
        """Meanwhile one email after the other is proposed and approved."""
        over = threading.Event()

        def offer() -> None:
            try:
                for number in itertools.count():
                    if over.wait(every.total_seconds()):
                        return
                    self._offer(chance.choice(self.stages), f"{chance.choice(WORDS)}+{number}")
            finally:
                connection.close()

        load = threading.Thread(target=offer)
        load.start()
        try:
            yield
        finally:
            over.set()
            load.join()

    def _offer(self, stage: Stage, to: str) -> None:
        intent = _until_the_database_is_there(lambda: stage.proposed(to))

        def approve() -> None:
            with suppress(
                Refused
            ):  # it was committed, and the connection lost before that was said
                review.approve(intent.pk, person=stage.approver, digest=intent.digest)

        _until_the_database_is_there(approve)
        self.offered += 1

    def comes_to_rest(self) -> float:
        """Wait until nothing is under way, and judge what became of all; the seconds it took."""
        began = time.monotonic()
        await_that(
            lambda: not SendIntent.objects.filter(status__in=UNDER_WAY).exists(),
            seconds=REST_SECONDS,
        )
        rest = time.monotonic() - began
        self.witness.ends()
        self._nobody_is_asked_without_need()
        return rest

    def _nobody_is_asked_without_need(self) -> None:
        """With a contract only what the provider itself never answers clearly becomes uncertain."""
        for intent in SendIntent.objects.filter(status=Status.UNCERTAIN):
            outcomes = Attempt.objects.filter(intent=intent).values_list("outcome", "contract")
            doubtful = [contract for outcome, contract in outcomes if outcome in DOUBTFUL]
            assert doubtful, f"{intent.pk} is uncertain without a doubt"
            if all(contract["recovery"] == "replay" for contract in doubtful):
                assert len(doubtful) >= MAX_ATTEMPTS, f"{intent.pk} could have been repeated"


def _until_the_database_is_there(step: Callable[[], Made]) -> Made:
    while True:
        try:
            return step()
        except Error:
            connection.close()
            time.sleep(0.2)


@contextmanager
def world_in(folder: Path, env: dict[str, str], seed: int) -> Iterator[World]:
    """A new one, its workers working; all its processes end with it."""
    with ExitStack() as stack:
        stages = []
        for contract in CONTRACTS:
            sandbox = stack.enter_context(sandbox_with(contract, deliver_after=0))
            stage = Stage(sandbox, contract, env, folder)
            stage.policy = {"lease": LEASE, "max_attempts": MAX_ATTEMPTS}
            stage.account = {"request_deadline": DEADLINE}
            stages.append(stage)
            stack.callback(stage.close)
            # Made here: a fault may take the database away from whoever makes them first.
            assert all(made.pk for made in (stage.agent, stage.approver))
        world = World(stages, random.Random(seed))
        for worker in world.workers:
            worker.is_working()
        yield world
