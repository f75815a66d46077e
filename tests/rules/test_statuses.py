"""The statuses, their transitions and their words, against the design's table written out again."""

import pytest

from sends.rules.statuses import (
    ACCEPTED,
    ACTIVE,
    APPROVED,
    CLAIMABLE,
    DELIVERY_ENDED,
    DELIVERY_FAILED,
    DELIVERY_SENTENCES,
    HOLD_BITS,
    LEGAL,
    MAY_BE_IN_DOUBT,
    NEVER_SENT,
    SENTENCES,
    TRANSITIONS,
    UNDECIDED,
    UNFINISHED,
    DeliveryState,
    Hold,
    Status,
    holds_in,
)

S = Status

# From the row to the column: x may, · may not. Written by hand, from the design and not the code.
COLUMNS = (
    *(S.AWAITING_APPROVAL, S.CHANGES_REQUESTED, S.REJECTED, S.QUEUED, S.IN_FLIGHT),
    *(S.RETRY_SCHEDULED, S.UNCERTAIN, S.SUBMITTED, S.DONE, S.DEAD_LETTER),
    *(S.SUPERSEDED, S.CANCELLED),
)
GRID = {
    #                    aw ch re qu fl rs un su do dl sp ca
    S.AWAITING_APPROVAL: "· x x x · · · · · · x x",
    S.CHANGES_REQUESTED: "x · · · · · · · · · x x",
    S.REJECTED: "         x · · · · · · · · · · ·",
    S.QUEUED: "           x · · · x · x x · x x x",
    S.IN_FLIGHT: "        · · · x · x x x · x · x",
    S.RETRY_SCHEDULED: "  x · · · x · x x · x x x",
    S.UNCERTAIN: "        · · · · · x · x · x · ·",
    S.SUBMITTED: "        · · · · · · · · x x · ·",
    S.DONE: "             · · · · · · · · · x · ·",
    S.DEAD_LETTER: "      · · · x · · x x · · x x",
    S.SUPERSEDED: "       · · · · · · · · · · · ·",
    S.CANCELLED: "        · · · · · · · · · · · ·",
}


@pytest.mark.parametrize("before", Status)
def test_the_legal_transitions_are_those_of_the_design(before: Status) -> None:
    cells = GRID[before].split()
    assert len(cells) == len(COLUMNS) == len(Status)
    assert LEGAL[before] == {
        after for after, cell in zip(COLUMNS, cells, strict=True) if cell == "x"
    }


def test_each_transition_is_told_once_and_says_when() -> None:
    edges = [(edge.before, edge.after) for edge in TRANSITIONS]
    assert len(edges) == len(set(edges))
    assert all(edge.when and edge.before is not edge.after for edge in TRANSITIONS)


@pytest.mark.parametrize("status", sorted(set(Status) - {S.SUPERSEDED, S.CANCELLED}))
def test_every_status_but_the_two_last_ones_has_an_exit(status: Status) -> None:
    assert LEGAL[status]


@pytest.mark.parametrize("status", [S.SUPERSEDED, S.CANCELLED])
def test_what_is_superseded_or_cancelled_stays_so(status: Status) -> None:
    assert not LEGAL[status]


def reached_from(*starts: Status) -> set[Status]:
    reached = set(starts)
    for _ in Status:
        reached |= {after for before in reached for after in LEGAL[before]}
    return reached


def test_every_status_can_be_reached_from_where_an_intent_is_born() -> None:
    assert reached_from(S.AWAITING_APPROVAL) == set(Status)


@pytest.mark.parametrize("status", sorted(UNFINISHED))
def test_every_unfinished_status_can_come_to_an_end(status: Status) -> None:
    assert reached_from(status) & {S.DONE, S.DEAD_LETTER, S.CANCELLED}


@pytest.mark.parametrize("status", sorted(ACCEPTED))
def test_what_was_accepted_is_never_sent_again(status: Status) -> None:
    # From DEAD_LETTER an accepted one goes nowhere: the database holds `accepted_at` against it.
    assert LEGAL[status] <= {S.DONE, S.DEAD_LETTER}


def test_only_an_approval_leads_to_the_provider() -> None:
    assert [before for before in Status if S.IN_FLIGHT in LEGAL[before]] == sorted(
        CLAIMABLE, key=list(Status).index
    )
    undecided = {before for before in UNDECIDED | {S.REJECTED} for after in LEGAL[before] & ACTIVE}
    assert undecided == {S.AWAITING_APPROVAL}


# The sets


def test_the_sets_are_those_of_the_design() -> None:
    assert {S.QUEUED, S.IN_FLIGHT, S.RETRY_SCHEDULED, S.UNCERTAIN} == ACTIVE
    assert {S.QUEUED, S.IN_FLIGHT, S.RETRY_SCHEDULED} == APPROVED
    assert {S.QUEUED, S.RETRY_SCHEDULED} == CLAIMABLE
    assert {S.IN_FLIGHT, S.RETRY_SCHEDULED, S.UNCERTAIN} == MAY_BE_IN_DOUBT
    assert {S.SUBMITTED, S.DONE} == ACCEPTED
    assert {S.AWAITING_APPROVAL, S.CHANGES_REQUESTED} == UNDECIDED
    assert {
        *(S.AWAITING_APPROVAL, S.CHANGES_REQUESTED, S.REJECTED, S.CANCELLED, S.SUPERSEDED)
    } == NEVER_SENT


def test_the_sets_lie_in_each_other_as_their_names_say() -> None:
    assert CLAIMABLE < APPROVED < ACTIVE < UNFINISHED
    assert MAY_BE_IN_DOUBT < ACTIVE
    assert UNDECIDED < UNFINISHED
    assert UNDECIDED < NEVER_SENT
    assert not UNFINISHED & ACCEPTED


def test_each_status_may_have_been_sent_or_never_was() -> None:
    assert ACTIVE | ACCEPTED | {S.DEAD_LETTER} | NEVER_SENT == set(Status)
    assert not (ACTIVE | ACCEPTED | {S.DEAD_LETTER}) & NEVER_SENT


@pytest.mark.parametrize("status", sorted(ACTIVE | {S.DEAD_LETTER}))
def test_evidence_of_acceptance_settles_whatever_may_have_been_sent(status: Status) -> None:
    assert S.SUBMITTED in LEGAL[status]


@pytest.mark.parametrize("status", sorted(NEVER_SENT))
def test_evidence_of_acceptance_moves_nothing_that_was_never_sent(status: Status) -> None:
    assert S.SUBMITTED not in LEGAL[status]


# The words that people read

WORDS = {
    S.AWAITING_APPROVAL: (
        "Awaiting approval",
        "A person has to decide; nothing has been sent.",
    ),
    S.CHANGES_REQUESTED: (
        "Changes requested",
        "Sent back; the agent may answer with a new version.",
    ),
    S.REJECTED: ("Rejected", "A person said no; the agent can read why."),
    S.QUEUED: ("Approved", "Decided; it goes out when the undo time is over."),
    S.IN_FLIGHT: ("Sending", "A worker is talking to the provider right now."),
    S.RETRY_SCHEDULED: (
        "Retry scheduled",
        "We try again at the time shown, with the same email and the same key.",
    ),
    S.UNCERTAIN: (
        "Uncertain",
        (
            "We do not know whether the provider took this email; nothing more is sent until it is "
            "settled."
        ),
    ),
    S.SUBMITTED: (
        "Accepted by provider",
        "The provider took the email; delivery news is still to come.",
    ),
    S.DEAD_LETTER: (
        "Dead letter",
        "We stopped trying; the reason is shown and nothing is retried by itself.",
    ),
    S.SUPERSEDED: (
        "Superseded",
        "A newer version replaced this one; this one is never sent again.",
    ),
    S.CANCELLED: (
        "Cancelled",
        (
            "Taken back before anything was sent: by a person, by the agent, or because it lapsed: "
            "nobody decided, or it could not go out in time."
        ),
    ),
}
DELIVERY_WORDS = {
    DeliveryState.DELIVERED: (
        "Delivered",
        "The recipient's mail server took the email; it does not mean anybody read it.",
    ),
    DeliveryState.DEFERRED: (
        "Deferred",
        "The recipient's server asked to try later; the provider keeps trying by itself.",
    ),
    DeliveryState.NO_NEWS: (
        "No news",
        "The provider took the email; we never heard what became of it.",
    ),
    DeliveryState.BOUNCED: (
        "Bounced",
        "The recipient's server refused the email for good; the address is suppressed.",
    ),
    DeliveryState.COMPLAINED: (
        "Complained",
        "The recipient reported the email as spam; the address is suppressed.",
    ),
}


@pytest.mark.parametrize("status", WORDS)
def test_people_read_the_agreed_words_for_a_status(status: Status) -> None:
    assert (status.label, SENTENCES[status]) == WORDS[status]


@pytest.mark.parametrize("state", DELIVERY_WORDS)
def test_people_read_the_agreed_words_for_a_delivery(state: DeliveryState) -> None:
    assert (state.label, DELIVERY_SENTENCES[state]) == DELIVERY_WORDS[state]


def test_every_status_and_delivery_state_has_one_sentence() -> None:
    assert set(SENTENCES) == set(Status)
    assert set(DELIVERY_SENTENCES) == set(DeliveryState)
    for sentence in [*SENTENCES.values(), *DELIVERY_SENTENCES.values()]:
        assert sentence[0].isupper()
        assert sentence.endswith(".")
        assert ". " not in sentence


def test_no_two_statuses_are_called_the_same() -> None:
    assert len({status.label for status in Status}) == len(Status)


def test_a_delivery_that_failed_has_ended() -> None:
    assert DELIVERY_FAILED < DELIVERY_ENDED
    assert DeliveryState.DELIVERED in DELIVERY_ENDED - DELIVERY_FAILED
    # A complaint comes from a person who has the email.
    assert DeliveryState.COMPLAINED in DELIVERY_ENDED - DELIVERY_FAILED
    assert set(DeliveryState) - DELIVERY_ENDED == {
        *(DeliveryState.WAITING, DeliveryState.ACCEPTED, DeliveryState.DEFERRED)
    }


def test_each_hold_has_a_bit_of_its_own() -> None:
    assert set(HOLD_BITS) == set(Hold)
    assert sorted(HOLD_BITS.values()) == [2**place for place in range(len(Hold))]


@pytest.mark.parametrize("mask", range(8))
def test_the_holds_in_a_mask_are_those_whose_bits_are_set(mask: int) -> None:
    holds = holds_in(mask)
    assert sum(HOLD_BITS[hold] for hold in holds) == mask
    assert holds == sorted(holds, key=list(Hold).index)
