"""An agent that polls for what changed misses nothing, whatever commits when."""

import base64
import itertools
import threading
import time
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sends.api.pages import read_token, token_of
from sends.lifecycle import review
from sends.lifecycle.transitions import move
from sends.models import (
    Agent,
    Policy,
    Restore,
    RestoreKind,
    SendIntent,
    changes,
    database_now,
)
from sends.reports.changes import beginning
from sends.rules.statuses import Status
from tests.api.doors import Door, door, problem
from tests.factories import make_agent, make_agent_at, make_intent, make_person, make_token
from tests.lifecycle.races import PATIENCE_SECONDS, at_once

OTHERS_SECONDS = 120
# What is not committed is told to nobody.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def agent() -> Agent:
    return make_agent_at()


@pytest.fixture
def api(agent: Agent) -> Door:
    return door(make_token(agent))


def wait_for_other_databases() -> None:
    """Until no test of another process has a transaction open that holds back what is told.

    PostgreSQL numbers the transactions of a whole server in one row.
    """
    if connection.vendor != "postgresql":
        return
    open_elsewhere = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname <> current_database()"
        " AND backend_xid::text::bigint < %s"
    )
    deadline = time.monotonic() + OTHERS_SECONDS
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        (next_number,) = cursor.fetchone()
        while True:
            cursor.execute(open_elsewhere, [next_number])
            if not cursor.fetchone()[0]:
                return
            assert time.monotonic() < deadline, "a transaction of another database does not end"
            time.sleep(0.01)


class Follower:
    """An agent that polls as the reference says, and what it was told."""

    def __init__(self, api: Door, *, since: str | None = None, **query: Any) -> None:
        self.api = api
        self.query = query
        self.since = self._page()["next_since"] if since is None else since
        self.told: list[tuple[str, str]] = []

    def poll(self) -> list[tuple[str, str]]:
        """Everything new: (action key, status), oldest change first."""
        new: list[tuple[str, str]] = []
        for _ in range(1000):
            page = self._page(since=self.since)
            assert page["next_cursor"] is None
            new += [(item["action_key"], item["status"]) for item in page["items"]]
            self.since = page["next_since"]
            if not page["more"]:
                self.told += new
                return new
        raise AssertionError("there is always more")

    def _page(self, **query: Any) -> dict[str, Any]:
        wait_for_other_databases()
        answer = self.api.get("/intents", **self.query, **query)
        assert answer.status_code == 200, answer.content
        page: dict[str, Any] = answer.json()
        return page


def cancel(intent: SendIntent) -> None:
    move(intent, Status.CANCELLED, now=database_now())


def named(api: Door, *keys: str) -> list[SendIntent]:
    ids = [api.proposed(action_key=key)["id"] for key in keys]
    return [SendIntent.objects.get(pk=pk) for pk in ids]


def test_what_was_created_and_what_changed_comes_once_and_in_order(api: Door) -> None:
    a, _ = named(api, "a", "b")
    follower = Follower(api)
    assert follower.poll() == []
    named(api, "c")
    cancel(a)
    assert follower.poll() == [("c", "awaiting_approval"), ("a", "cancelled")]
    assert follower.poll() == []


def test_empty_means_from_the_beginning(api: Door) -> None:
    a, _ = named(api, "a", "b")
    cancel(a)
    follower = Follower(api, since="")
    assert sorted(follower.poll()) == [("a", "cancelled"), ("b", "awaiting_approval")]
    assert follower.poll() == []


def test_several_changes_between_two_polls_come_as_the_last(agent: Agent, api: Door) -> None:
    follower = Follower(api)
    make_intent(agent, status=Status.DONE)
    assert [status for _, status in follower.poll()] == ["done"]


def test_page_by_page_nothing_is_left_out(agent: Agent, api: Door) -> None:
    follower = Follower(api, since="", limit=3)
    keys = [f"k{number}" for number in range(8)]
    intents = named(api, *keys)
    assert sorted(key for key, _ in follower.poll()) == keys
    with transaction.atomic():  # alike in their mark, on PostgreSQL
        for intent in intents:
            cancel(intent)
    assert sorted(key for key, _ in follower.poll()) == keys
    assert follower.poll() == []


def test_filters_look_at_the_present(agent: Agent, api: Door) -> None:
    a, b = named(api, "a", "b")
    follower = Follower(api, status="cancelled")
    cancel(a)
    assert follower.poll() == [("a", "cancelled")]
    cancel(b)
    assert follower.poll() == [("b", "cancelled")]


def test_nobody_is_told_of_anothers(agent: Agent, api: Door) -> None:
    assert agent.sender is not None
    others = [door(make_token(one)) for one in (make_agent(agent.sender), make_agent_at())]
    followers = [Follower(other, since="") for other in others]
    named(api, "a")
    assert [follower.poll() for follower in followers] == [[], []]


def test_a_rejection_is_told_when_it_can_no_longer_be_undone(agent: Agent, api: Door) -> None:
    Policy.objects.filter(tenant=agent.tenant).update(undo_time=timedelta(hours=1))
    a, b, c = named(api, "a", "b", "c")
    follower = Follower(api, limit=1)
    person = make_person(agent.tenant)
    for intent in (a, b, c):
        review.reject(intent.pk, person=person, digest=intent.digest, note="", reason_code="tone")
    assert {status for _, status in follower.poll()} == {"awaiting_approval"}
    assert follower.poll() == []

    # Two seconds ago the agent asked; since then the undo time of two of them has ended, for which
    # no row is written.
    ago = database_now() - timedelta(seconds=2)
    follower.since = token_of(replace(read_token(follower.since), final_at=ago))
    SendIntent.objects.filter(pk__in=[a.pk, b.pk]).update(undo_until=ago + timedelta(seconds=1))
    assert sorted(follower.poll()) == [("a", "rejected"), ("b", "rejected")]
    assert follower.poll() == []


def test_a_restored_database_asks_to_begin_anew(api: Door) -> None:
    follower = Follower(api)
    now = database_now()
    Restore.objects.create(kind=RestoreKind.DECLARED, made_at=now, noticed_at=now)
    said = problem(api.get("/intents", since=follower.since), 410, "cursor_expired")
    assert said["next_step"] == "fix"
    assert Follower(api).poll() == []


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(min_size=64, max_size=64))
def test_a_place_that_somebody_made_up_is_refused_or_read(raw: bytes, api: Door) -> None:
    token = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    assert api.get("/intents", since=token).status_code in (200, 410, 422)
    own = base64.urlsafe_b64encode(beginning().restore.bytes + raw[16:]).decode().rstrip("=")
    assert api.get("/intents", since=own).status_code in (200, 422)


def test_a_place_is_read_as_it_was_given() -> None:
    place = beginning()
    assert read_token(token_of(place)) == place


def test_what_commits_late_is_not_missed() -> None:
    """One transaction changes an intent and stays open while others commit and are read."""
    if connection.vendor == "sqlite":
        return  # it lets one transaction write at a time: none can commit late
    agent = make_agent_at()
    api = door(make_token(agent))
    early, late = named(api, "early", "late")
    follower = Follower(api)
    changed, may_commit = threading.Event(), threading.Event()

    def slow() -> None:
        with closing(connection), transaction.atomic():
            cancel(late)
            changed.set()
            may_commit.wait(PATIENCE_SECONDS)

    thread = threading.Thread(target=slow, daemon=True)
    thread.start()
    assert changed.wait(PATIENCE_SECONDS)
    cancel(early)
    make_intent(agent)
    while_open = follower.poll()
    may_commit.set()
    thread.join(PATIENCE_SECONDS)
    follower.poll()
    assert not [one for one in while_open if one[0] == "late"]
    assert ("late", "cancelled") in follower.told
    assert ("early", "cancelled") in follower.told
    assert len(follower.told) == 3


def test_while_many_write_at_once_a_reader_misses_nothing() -> None:
    agent = make_agent_at()
    token = make_token(agent)
    follower = Follower(door(token), limit=5)
    done = threading.Event()

    def write(writer: int) -> None:
        for number in range(4):
            intent = named(door(token), f"w{writer}-{number}")[0]
            if number % 2:
                with transaction.atomic():
                    cancel(intent)

    def read() -> None:
        while not done.wait(0.01):
            follower.poll()

    def write_all() -> None:
        try:
            answers = at_once(*[lambda writer=writer: write(writer) for writer in range(3)])
            assert answers == [None] * 3
        finally:
            done.set()

    assert at_once(read, write_all) == [None, None]
    assert done.is_set()
    follower.poll()
    last = dict(follower.told)
    expected = {
        f"w{writer}-{number}": "cancelled" if number % 2 else "awaiting_approval"
        for writer, number in itertools.product(range(3), range(4))
    }
    assert last == expected


def test_marks_of_a_server_that_was_further_on_are_made_smaller() -> None:
    """As after a dump was restored: its marks are of another server's transactions."""
    agent = make_agent_at()
    api = door(make_token(agent))
    named(api, "a", "b", "c")
    ahead = 10**12
    for number, intent in enumerate(SendIntent.objects.order_by("pk")):
        SendIntent.objects.filter(pk=intent.pk).update(change_mark=ahead + number)
    moved = changes.renumber()
    if connection.vendor == "sqlite":
        assert moved == 0
    else:
        assert moved > 0
        assert changes.renumber() == 0
    follower = Follower(api, since="")
    assert [key for key, _ in follower.poll()] == ["a", "b", "c"]
    named(api, "d")
    assert [key for key, _ in follower.poll()] == ["d"]


def test_a_poll_asks_the_database_a_few_times_however_much_there_is(
    agent: Agent, api: Door, asks_at_most: Any
) -> None:
    named(api, *(f"k{number}" for number in range(12)))
    api.get("/intents")
    with asks_at_most(7):
        api.get("/intents", since="", limit=10)
