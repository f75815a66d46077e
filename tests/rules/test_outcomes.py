"""What happened, and what it means under which contract."""

from dataclasses import replace
from datetime import date

import pytest

from sends.rules.contracts import Contract, Recovery
from sends.rules.outcomes import COUNTED, DOUBTFUL, TOOK_IT, Happened, Outcome, Phase, classify

O = Outcome  # noqa: E741
STRICT = Contract(Recovery.PERSON, source="a page", checked_on=date(2026, 11, 30))
BUSY_IS_SAFE = replace(STRICT, took_nothing=frozenset({503, 421}))
ANSWERED = Happened(Phase.ANSWERED)


@pytest.mark.parametrize(
    ("phase", "error", "outcome"),
    [
        (Phase.PREPARED, "", O.NOT_SENT),
        (Phase.CONNECTING, "dns", O.NOT_SENT),
        (Phase.CONNECTING, "refused", O.NOT_SENT),
        (Phase.CONNECTING, "unreachable", O.NOT_SENT),
        (Phase.CONNECTING, "connect_timeout", O.NOT_SENT),
        (Phase.CONNECTING, "tls", O.NOT_SENT),
        (Phase.CONNECTED, "closed", O.NOT_SENT),
        (Phase.CONNECTED, "deadline", O.NOT_SENT),
        (Phase.CONNECTED, "too_late", O.RELEASED),
        (Phase.DISPATCHED, "reset", O.AMBIGUOUS),
        (Phase.DISPATCHED, "write_timeout", O.AMBIGUOUS),
        (Phase.SENT, "closed", O.AMBIGUOUS),
        (Phase.SENT, "deadline", O.AMBIGUOUS),
        (Phase.SENT, "internal", O.AMBIGUOUS),
        (Phase.ANSWERING, "bad_answer", O.AMBIGUOUS),
        (Phase.ANSWERING, "deadline", O.AMBIGUOUS),
    ],
)
def test_without_an_answer_it_is_how_far_the_request_got(
    phase: Phase, error: str, outcome: Outcome
) -> None:
    assert classify(Happened(phase, error), STRICT) is outcome


@pytest.mark.parametrize(
    ("statuses", "outcome"),
    [
        ((200, 201, 202, 204, 299), O.AMBIGUOUS),  # no proof
        ((100, 101, 103, 199), O.AMBIGUOUS),
        ((408,), O.AMBIGUOUS),
        ((500, 501, 502, 503, 504, 505, 520, 599, 999), O.AMBIGUOUS),
        ((429,), O.THROTTLED),
        ((301, 302, 303, 304, 307, 308), O.BLOCKED),
        ((401, 402, 403), O.BLOCKED),
        ((400, 404, 405, 406, 409, 410, 411, 413, 414, 415, 421, 422, 451), O.REFUSED),
    ],
)
def test_the_general_table_of_statuses(statuses: tuple[int, ...], outcome: Outcome) -> None:
    found = {status: classify(replace(ANSWERED, status=status), STRICT) for status in statuses}
    assert found == dict.fromkeys(statuses, outcome)


@pytest.mark.parametrize("status", [503, 421])
def test_a_status_that_took_nothing_by_contract_is_transient(status: int) -> None:
    assert classify(replace(ANSWERED, status=status), BUSY_IS_SAFE) is O.TRANSIENT


@pytest.mark.parametrize(
    ("happened", "outcome", "why"),
    [
        (replace(ANSWERED, status=201, proof="m1"), O.ACCEPTED, "its id is the proof"),
        (replace(ANSWERED, status=200, proof="m1", replayed=True), O.ACCEPTED, "a replay"),
        (replace(ANSWERED, status=200, replayed=True), O.AMBIGUOUS, "a replay of what?"),
        (replace(ANSWERED, status=201, proof="m1", refused=("a",)), O.ACCEPTED_IN_PART, "some"),
        (replace(ANSWERED, status=201, refused=("a",)), O.AMBIGUOUS, "no proof of the others"),
        (replace(ANSWERED, status=201, error="cut"), O.AMBIGUOUS, "the proof was cut off"),
        (replace(ANSWERED, status=201, error="cut", proof="m1"), O.ACCEPTED, "proof, then cut"),
        (replace(ANSWERED, status=500, proof="m1"), O.AMBIGUOUS, "only a success is believed"),
        (replace(ANSWERED, status=422, error="cut"), O.REFUSED, "the status stands"),
        (replace(ANSWERED, status=422, says=O.SUPPRESSED), O.SUPPRESSED, "the adapter knows"),
        (replace(ANSWERED, status=200, proof="m1", says=O.REFUSED), O.REFUSED, "the adapter knows"),
        (replace(ANSWERED, says=O.INTERNAL), O.INTERNAL, "even without an answer"),
    ],
)
def test_an_answer(happened: Happened, outcome: Outcome, why: str) -> None:
    assert classify(happened, STRICT) is outcome, why


def test_no_outcome_is_both_certain_and_doubtful() -> None:
    assert not TOOK_IT & DOUBTFUL
    assert {O.AMBIGUOUS} == COUNTED & DOUBTFUL
    assert not COUNTED & TOOK_IT
