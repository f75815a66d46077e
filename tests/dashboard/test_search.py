"""What people type to find an email: how it is read, and what it finds."""

from datetime import UTC, date, datetime, timedelta

import pytest
from django.utils import timezone

from sends.dashboard.search import STATES, Kind, Search, Term, find, search_in
from sends.lifecycle.transitions import set_hold
from sends.models import Action, Cause, Delivery, SendIntent, Switch, SwitchKind, first_id, new_id
from sends.rules.statuses import Hold, Status
from tests.factories import make_agent_at, make_intent, make_run


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("#48177", Kind.NUMBER),
        ("48177", Kind.NUMBER),
        ("ap@example.org", Kind.ADDRESS),
        ("example.org", Kind.DOMAIN),
        ("@mail.example.org", Kind.DOMAIN),
        ("bücher.example", Kind.DOMAIN),
        ("c1f04b7a92de6038515ab3e7740d9c26fe81a05b", Kind.KEY),
        ("<0191.v2@mail.example.com>", Kind.MESSAGE_ID),
        ("sbx_0191f7c2", Kind.IDENTIFIER),
        ("order:7731", Kind.IDENTIFIER),
        ("order-7731-delay", Kind.IDENTIFIER),
        ("refund", Kind.WORD),
        ("follow-up", Kind.WORD),
        ("€1,240.00", Kind.WORD),
    ],
)
def test_a_word_is_known_by_its_shape(word, kind):
    assert search_in(word).terms == (Term(kind, word),)


@pytest.mark.parametrize(
    ("text", "search"),
    [
        ('subject:"payment reminder"', Search(subject="payment reminder")),
        ("Subject:invoice", Search(subject="invoice")),
        ("state:uncertain", Search(state="uncertain")),
        ('state:"Accepted by provider"', Search(state="submitted")),
        ("state:sending", Search(state="in_flight")),
        ("state:approved", Search(state="queued")),
        ("state:bounced agent:refunds", Search(state="bounced", agent="refunds")),
        ('run:"14 Oct, 08:00"', Search(run="14 Oct, 08:00")),
        ("template:order-delay", Search(template="order-delay")),
        ("from:2026-10-01", Search(since=date(2026, 10, 1))),
        ("is:followup", Search(follow_ups=True)),
        ("state:", Search()),
        ("   ", Search()),
        (
            '"two words" refund #7',
            Search(
                (Term(Kind.WORD, "two words"), Term(Kind.WORD, "refund"), Term(Kind.NUMBER, "#7"))
            ),
        ),
    ],
)
def test_a_search_is_read_and_written_alike(text, search):
    assert search_in(text) == search
    assert search_in(search.text) == search


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("state:lost", "is not a state"),
        ("from:yesterday", "is not a date"),
        ("is:urgent", "is:followup"),
        ("stat:uncertain", "stat: is not a filter"),
    ],
)
def test_what_is_not_understood_is_named_and_finds_nothing(text, said):
    (wrong,) = search_in(text).wrong
    assert said in wrong


@pytest.mark.parametrize(
    ("text", "is_bounded"),
    [
        ("", True),
        ("refund", True),
        ("agent:refunds", True),
        ("state:bounced", True),
        ("state:dead_letter", False),
        ("#7", False),
        ("ap@example.org", False),
        ("run:today", False),
        ("from:2024-01-01", False),
    ],
)
def test_only_what_leads_straight_to_its_rows_looks_back_for_ever(text, is_bounded):
    assert search_in(text).covers_usual_span is is_bounded


# What is found


@pytest.fixture
def agent(db):
    return make_agent_at()


def found(text, agent):
    rows = find(search_in(text), agent.tenant, timezone.now()).order_by("-pk")
    return list(rows)


def test_by_number_address_domain_key_and_ids(agent):
    intent = make_intent(
        agent, status=Status.SUBMITTED, to="AP@Example.org", bcc=("x@example.net",)
    )
    make_intent(agent, to="other@example.com")
    for text in (
        f"#{intent.action.number}",
        str(intent.action.number),
        "AP@example.ORG",
        "x@example.net",
        "example.org",
        intent.idempotency_key,
        intent.message_id,
        intent.provider_message_id,
    ):
        assert found(text, agent) == [intent], text
    assert found("ap@example.org #999999", agent) == []


def test_by_its_action_key(agent):
    action = Action.objects.create(
        tenant=agent.tenant,
        number=agent.tenant.take_number(),
        action_key="order:7731:delay",
        latest_version=0,
        created_at=timezone.now(),
    )
    intent = make_intent(agent, action=action)
    assert found("order:7731:delay", agent) == [intent]


def test_by_words_of_the_subject_in_any_case(agent):
    intent = make_intent(agent, subject="Payment reminder, second")
    assert found("REMINDER payment", agent) == [intent]
    assert found('subject:"payment reminder"', agent) == [intent]
    assert found('subject:"reminder payment"', agent) == []


def test_by_agent_run_and_template(agent):
    run = make_run(agent, name="14 Oct, 08:00")
    intent = make_intent(agent, run=run, template="order-delay")
    make_intent(agent)
    for text in ('run:"14 Oct, 08:00"', "template:order-delay"):
        assert found(text, agent) == [intent]
    assert len(found(f"agent:{agent.slug}", agent)) == 2
    assert found("agent:nobody", agent) == []


@pytest.mark.parametrize("status", list(Status))
def test_by_every_status(agent, status):
    intent = make_intent(agent, status=status)
    for other in Status:
        assert (found(f"state:{other}", agent) == [intent]) is (other == status)


def test_by_the_state_of_a_delivery(agent):
    intent = make_intent(agent, status=Status.SUBMITTED, cc=("second@example.org",))
    Delivery.objects.filter(intent=intent, position=1).update(state="deferred")
    make_intent(agent, status=Status.SUBMITTED)
    assert found("state:deferred", agent) == [intent]


def test_by_what_stops_it(agent):
    run = make_run(agent)
    in_run = make_intent(agent, run=run, status=Status.QUEUED)
    held = make_intent(agent, status=Status.QUEUED)
    make_intent(agent, run=run)  # awaits approval: it is not what stops it
    assert found("state:halted", agent) == []
    Switch.objects.filter(pk=run.pk).update(causes=Cause.PAUSED)
    set_hold(Hold.ANOMALY, pk=held.pk)
    assert found("state:halted", agent) == [in_run]
    assert found("state:on_hold", agent) == [held, in_run]
    free = make_intent(agent, status=Status.QUEUED)
    Switch.objects.filter(pk=agent.sender.account_id).update(causes=Cause.BLOCKED)
    assert found("state:on_hold", agent) == [free, held, in_run]
    Switch.objects.filter(pk=agent.sender.account_id).update(causes=0)
    Switch.objects.filter(kind=SwitchKind.INSTALLATION).update(causes=Cause.PAUSED)
    assert found("state:on_hold", agent) == [free, held, in_run]


def test_every_state_can_be_asked_for(agent):
    for state in STATES:
        assert found(f"state:{state}", agent) == []


def test_the_current_version_unless_an_older_one_is_meant(agent):
    first = make_intent(agent, status=Status.SUPERSEDED, to="old@example.org")
    second = make_intent(agent, action=first.action, to="new@example.org")
    assert found(f"#{first.action.number}", agent) == [second]
    assert found(first.idempotency_key, agent) == [first]
    assert found("state:superseded", agent) == [first]
    assert found("old@example.org", agent) == []


def test_follow_ups_and_dates(agent):
    first = make_intent(agent)
    second = make_intent(agent)
    Action.objects.filter(pk=second.action_id).update(follows=first.action)
    assert found("is:followup", agent) == [second]
    tomorrow = timezone.localdate() + timedelta(days=1)
    assert found(f"from:{tomorrow}", agent) == []
    assert len(found(f"from:{timezone.localdate() - timedelta(days=1)}", agent)) == 2


def test_an_open_search_looks_ninety_days_back(agent):
    intent = make_intent(agent, status=Status.DEAD_LETTER)
    later = timezone.now() + timedelta(days=91)
    assert found("", agent) == [intent]
    assert not find(Search(), agent.tenant, later).exists()
    assert find(Search(state=Status.DEAD_LETTER), agent.tenant, later).exists()


def test_nothing_of_another_tenant_is_found(agent):
    foreign = make_intent(make_agent_at(), status=Status.SUBMITTED, to="a@example.org")
    for text in (
        "",
        foreign.idempotency_key,
        foreign.message_id,
        foreign.provider_message_id,
        foreign.action.action_key,
        "a@example.org",
        f"#{foreign.action.number}",
    ):
        assert found(text, agent) == [], text


def test_the_first_key_of_a_moment_comes_before_every_key_made_then():
    now = datetime.now(UTC)
    assert first_id(now - timedelta(milliseconds=5)) < new_id()
    assert first_id(now + timedelta(seconds=5)) > new_id()


def test_what_is_wrong_finds_nothing(agent):
    make_intent(agent)
    assert found("stat:uncertain", agent) == []
    assert SendIntent.objects.exists()
