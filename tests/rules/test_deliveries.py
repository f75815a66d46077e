"""A recipient's state is a function of the set of its events."""

from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.rules.deliveries import PROVES_TAKEN, SUPPRESSES, EventKind, state_after
from sends.rules.statuses import DELIVERY_ENDED, DELIVERY_FAILED, DeliveryState

S, K = DeliveryState, EventKind

# events, what the recipient becomes, why
CASES: list[tuple[tuple[EventKind, ...], DeliveryState, str]] = [
    ((), S.ACCEPTED, "silence proves nothing"),
    ((K.ACCEPTED,), S.ACCEPTED, "the provider took it"),
    ((K.DEFERRED,), S.DEFERRED, "the provider goes on trying"),
    ((K.SOFT_BOUNCED,), S.DEFERRED, "a bounce for now is a deferral"),
    ((K.DELIVERED,), S.DELIVERED, "the recipient's server took it"),
    ((K.DEFERRED, K.DELIVERED), S.DELIVERED, "tried again with success"),
    ((K.SOFT_BOUNCED, K.BOUNCED), S.BOUNCED, "tried again in vain"),
    ((K.DELIVERED, K.BOUNCED), S.BOUNCED, "taken first, returned afterwards"),
    ((K.DELIVERED, K.COMPLAINED), S.COMPLAINED, "a complaint is never forgotten"),
    ((K.BOUNCED, K.COMPLAINED), S.COMPLAINED, "the worst of two"),
    ((K.DELIVERED, K.ACCEPTED), S.DELIVERED, "an older event comes late"),
    ((K.UNSUBSCRIBED,), S.DELIVERED, "who unsubscribes has it"),
    ((K.REFUSED,), S.REFUSED, "the provider would not mail it"),
    ((K.DROPPED,), S.DROPPED, "the provider did not pass it on"),
    ((K.UNKNOWN,), S.ACCEPTED, "an unknown event proves nothing"),
    ((K.UNKNOWN, K.DELIVERED), S.DELIVERED, "and hides nothing"),
]


@pytest.mark.parametrize(("kinds", "expected", "why"), CASES)
def test_a_state_follows_from_the_set_of_events(
    kinds: tuple[EventKind, ...], expected: DeliveryState, why: str
) -> None:
    for order in permutations(kinds):
        state = DeliveryState.ACCEPTED
        for kind in order:
            state = state_after(state, [kind])
        assert state == expected, why


@given(st.lists(st.sampled_from(EventKind)), st.randoms(use_true_random=False))
def test_neither_order_nor_repetition_matters(kinds: list[EventKind], random: Random) -> None:
    shuffled = [*kinds, *kinds]
    random.shuffle(shuffled)
    state = S.WAITING
    for kind in shuffled:
        state = state_after(state, [kind])
    assert state == state_after(S.WAITING, kinds)


@given(st.sampled_from(DeliveryState), st.lists(st.sampled_from(EventKind)))
def test_a_bounce_or_complaint_is_never_taken_back(
    state: DeliveryState, kinds: list[EventKind]
) -> None:
    hurt = state_after(state, [K.BOUNCED])
    assert state_after(hurt, kinds) in (S.BOUNCED, S.COMPLAINED)


def test_only_a_hard_bounce_and_a_complaint_suppress() -> None:
    assert {K.BOUNCED, K.COMPLAINED} == SUPPRESSES


def test_only_an_unknown_event_does_not_prove_that_the_provider_took_it() -> None:
    assert set(EventKind) - PROVES_TAKEN == {K.UNKNOWN}


def test_every_failure_is_an_end() -> None:
    assert DELIVERY_FAILED < DELIVERY_ENDED
    assert S.COMPLAINED not in DELIVERY_FAILED  # it arrived, and how
