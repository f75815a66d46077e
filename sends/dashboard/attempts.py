"""One attempt in words: what happened on the wire, what it means, and what was to follow."""

from collections.abc import Iterator

from sends.models import Attempt
from sends.rules.outcomes import DOUBTFUL, TOOK_IT, Outcome, Phase
from sends.templatetags.outbox import in_words

NOTHING_TAKEN = frozenset({Outcome.NOT_SENT, Outcome.THROTTLED, Outcome.TRANSIENT})
STEPS = {
    "connect": "connected",
    "tls": "TLS",
    "sent": "request sent",
    "first_byte": "first byte",
    "end": "end",
}
# What broke, where an outcome alone says too little.
BROKE = {
    "deadline": "no answer",
    "reset": "connection reset",
    "closed": "connection closed",
    "write_timeout": "connection stalled",
    "cut": "answer cut off",
    "bad_answer": "unreadable answer",
    "lost": "the worker was lost",
    "dns": "the provider's name was not found",
    "refused": "connection refused",
    "unreachable": "provider not reached",
    "connect_timeout": "no connection in time",
    "tls": "no secure connection",
}
LOOKS = {
    **dict.fromkeys(NOTHING_TAKEN, ("move", "retry")),
    **dict.fromkeys(TOOK_IT, ("move", "check")),
    **dict.fromkeys(DOUBTFUL, ("unsure", "unsure")),
    Outcome.RELEASED: ("rest", "pause"),
    Outcome.BLOCKED: ("bad", "lock"),
}


def look(attempt: Attempt) -> tuple[str, str]:
    """Tone and icon."""
    if attempt.closed_at is None:
        return "move", "send"
    return LOOKS.get(Outcome(attempt.outcome), ("bad", "refused"))


def title(attempt: Attempt) -> str:
    again = ", same key" if attempt.number > 1 else ""
    return f"Attempt {attempt.number}{again}: {_outcome(attempt)}"


def text(attempt: Attempt) -> str:
    return " ".join(_sentences(attempt))


def wire(attempt: Attempt) -> str:
    """The phases with the seconds at which each was reached, and what the provider said."""
    reached = [
        f"{words} {attempt.seconds[step]:.2f} s"
        for step, words in STEPS.items()
        if step in attempt.seconds
    ]
    return "\n".join(line for line in (" · ".join(reached), attempt.body.strip()) if line)


def took(attempt: Attempt) -> float | None:
    """The seconds up to the end of the answer; None where it has none."""
    found = attempt.seconds.get("end")
    return float(found) if found is not None else None


def sent(attempt: Attempt) -> str:
    """How much of the request left: "All 2,318 bytes were sent."."""
    if attempt.phase < Phase.DISPATCHED or not attempt.bytes_total:
        return ""
    if attempt.bytes_sent >= attempt.bytes_total:
        return f"All {attempt.bytes_total:,} bytes were sent."
    return f"{attempt.bytes_sent:,} of {attempt.bytes_total:,} bytes were sent."


def _outcome(attempt: Attempt) -> str:
    if attempt.closed_at is None:
        return "under way"
    outcome = Outcome(attempt.outcome)
    if outcome in (Outcome.AMBIGUOUS, Outcome.NOT_SENT):
        if attempt.http_status is not None and attempt.http_status >= 500:
            return "server error"
        return BROKE.get(attempt.error, outcome.label)
    return str(outcome.label)


def _sentences(attempt: Attempt) -> Iterator[str]:
    if attempt.closed_at is None:
        yield "A worker is talking to the provider."
        return
    yield from _answer(attempt)
    yield from _meaning(attempt)
    yield from _next(attempt)
    if attempt.asked_by is not None:
        yield f"Asked for by {attempt.asked_by}."


def _answer(attempt: Attempt) -> Iterator[str]:
    seconds = took(attempt)
    if attempt.http_status is not None:
        after = f" after {seconds:.2f} s" if seconds is not None else ""
        yield f"HTTP {attempt.http_status}{after}."
        return
    if words := sent(attempt):
        yield words
    if attempt.error == "deadline":
        limit = f" in {in_words(seconds)}" if seconds else ""
        yield f"Nothing came back{limit}."


def _meaning(attempt: Attempt) -> Iterator[str]:
    outcome = Outcome(attempt.outcome)
    if outcome in NOTHING_TAKEN:
        yield "Nothing was taken."
    elif outcome in TOOK_IT:
        if attempt.replayed:
            yield "The provider knew the key and answered with the first email."
        if attempt.provider_message_id:
            yield f"Provider id {attempt.provider_message_id}."
    elif outcome is Outcome.AMBIGUOUS and (attempt.http_status or 0) >= 500:
        yield "That can come before or after the email is taken."
    elif attempt.reason and attempt.error not in BROKE:
        yield sentence(attempt.reason)


def _next(attempt: Attempt) -> Iterator[str]:
    if attempt.next_attempt_at is None or attempt.closed_at is None:
        return
    wait = (attempt.next_attempt_at - attempt.closed_at).total_seconds()
    asked = ""
    if attempt.retry_after is not None:
        asked = f"; the provider asked for {in_words(attempt.retry_after.total_seconds())}"
    yield f"Next attempt {_wait(wait)} later{asked}."


def _wait(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else in_words(seconds)


def sentence(words: str) -> str:
    """Words as a sentence of their own. An address keeps its first letter."""
    words = words.strip()
    if "@" not in words.partition(" ")[0]:
        words = words[:1].upper() + words[1:]
    return words if words.endswith((".", "?", "!", "…")) else f"{words}."
