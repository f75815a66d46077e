"""A message that was posted: decide by menu and contract, enter it, say what to answer."""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass, replace

from . import events
from .contract import Contract, Recalled, Repeat, recall, remember
from .faults import (
    DELIVERED,
    HEALTHY,
    MENU,
    NO_ONE_LEFT,
    Fault,
    Happening,
    Manner,
    Reply,
    Spoil,
    error,
    word_of,
)
from .journal import Received, enter_message, enter_request
from .reading import Message
from .settings import EventMode, Settings, next_scripted
from .wire import Answer, answer_of, json_answer

REPEATS = {
    Repeat.CONFLICT: error(409, "key_conflict", "This key belongs to another request."),
    Repeat.IN_PROGRESS: error(
        409, "key_in_progress", "A request with this key is still being processed."
    ),
}
UNANSWERED = (Manner.CUT, Manner.RESET, Manner.HELD)


@dataclass(frozen=True)
class Verdict:
    """The answer, and the message whose events must be out before it."""

    answer: Answer
    send_first: int | None = None


def refuse(db: sqlite3.Connection, received: Received, reply: Reply, outcome: str) -> Verdict:
    """Enter a request that was turned away before it was looked at as a message."""
    enter_request(db, received, outcome=outcome, status=reply.status, answer=Manner.WHOLE)
    return Verdict(answer_of(reply))


def take(
    db: sqlite3.Connection, received: Received, message: Message, settings: Settings, now: float
) -> Verdict:
    """Decide about one message and enter what was decided; one step of the journal."""
    chosen = choose(db, received, message, now)
    refused = refused_recipients(message, chosen)
    if chosen.fault.takes and len(refused) == len(message.recipients):
        chosen = replace(chosen, fault=Fault("", takes=False, reply=NO_ONE_LEFT))
    if not chosen.fault.takes:
        return turn_away(db, received, message, chosen)
    if settings.contract is Contract.REPLAY and received.key is not None:
        known = recall(
            db, received.org, received.key, message.meaning, now=now, window=settings.window
        )
        if known is not None:
            return repeat(db, received, message, chosen, known)
    return accept(db, received, message, chosen, refused, settings, now)


@dataclass(frozen=True)
class Chosen:
    """The fault that shows itself now, and the word that was asked for."""

    word: str
    fault: Fault
    scripted: bool


def choose(db: sqlite3.Connection, received: Received, message: Message, now: float) -> Chosen:
    facts = {"key": received.key, "tag": message.tag, "to": message.recipients[0]}
    if word := next_scripted(db, facts):
        return Chosen(word, MENU[word], scripted=True)
    word = word_of(message.recipients[0])
    shows = shows_itself(db, received, message, word, now)
    return Chosen(word, MENU[word] if shows else HEALTHY, scripted=False)


def shows_itself(
    db: sqlite3.Connection, received: Received, message: Message, word: str, now: float
) -> bool:
    """Count this request for its key, or its tag; without both every request is the first."""
    fault, handle = MENU[word], received.key or message.tag
    if handle is None or (fault.times is None and fault.seconds is None):
        return True
    row = db.execute(
        "INSERT INTO seen (org, word, handle, times, first_at) VALUES (?, ?, ?, 1, ?)"
        " ON CONFLICT DO UPDATE SET times = times + 1 RETURNING times, first_at",
        (received.org, word, handle, now),
    ).fetchone()
    if fault.seconds is not None:
        return bool(now < row["first_at"] + fault.seconds)
    return bool(row["times"] <= (fault.times or 0))


def refused_recipients(message: Message, chosen: Chosen) -> list[str]:
    if chosen.scripted and chosen.fault.refuses_recipient:
        return [message.recipients[0]]
    return [one for one in message.recipients if MENU[word_of(one)].refuses_recipient]


def turn_away(
    db: sqlite3.Connection, received: Received, message: Message, chosen: Chosen
) -> Verdict:
    answer = disguise(json_answer(500, {}), chosen.fault)
    enter(
        db, received, message, chosen, answer, "reset" if chosen.fault.reply is None else "refused"
    )
    return Verdict(answer)


def repeat(
    db: sqlite3.Connection,
    received: Received,
    message: Message,
    chosen: Chosen,
    known: Recalled,
) -> Verdict:
    if known.repeat is Repeat.REPLAYED:
        replayed = {**known.answer, "replayed": True}
        answer = json_answer(200, replayed, {"Idempotent-Replayed": "true"})
        answer = disguise(answer, chosen.fault)
    else:
        answer = replace(answer_of(REPEATS[known.repeat]), manner=chosen.fault.manner)
    enter(db, received, message, chosen, answer, known.repeat)
    return Verdict(answer)


def accept(
    db: sqlite3.Connection,
    received: Received,
    message: Message,
    chosen: Chosen,
    refused: list[str],
    settings: Settings,
    now: float,
) -> Verdict:
    body = {
        "id": f"sbx_{secrets.token_hex(12)}",
        "thread_id": f"thr_{secrets.token_hex(12)}",
        "status": "accepted",
        "accepted": [one for one in message.recipients if one not in refused],
        "refused": refused,
        "replayed": False,
        "tag": message.tag,
    }
    answer = disguise(json_answer(201, body), chosen.fault)
    request_no = enter(db, received, message, chosen, answer, "accepted")
    seq = enter_message(
        db,
        received,
        message,
        request_no=request_no,
        provider_id=str(body["id"]),
        refused=refused,
        contract=settings.contract,
        hidden=chosen.fault.hidden,
        now=now,
    )
    if settings.contract is Contract.REPLAY and received.key is not None:
        completed_at = now + answer.delay_seconds
        remember(db, received.org, received.key, message.meaning, body, completed_at=completed_at)
    first = chosen.fault.event_first or settings.events is EventMode.BEFORE_ANSWER
    for one in message.recipients:
        happenings = happenings_of(one, chosen, refused)
        events.plan(db, seq, one, happenings, settings, now=now, first=first)
    return Verdict(answer, seq if first else None)


def happenings_of(address: str, chosen: Chosen, refused: list[str]) -> tuple[Happening, ...]:
    """A recipient's own word decides, unless the message's is silent or a script says more."""
    if not chosen.fault.happenings:
        return ()
    if address in refused:
        return MENU["refuse-one"].happenings
    is_about_recipients = chosen.fault.happenings != DELIVERED
    if chosen.scripted and is_about_recipients and not chosen.fault.refuses_recipient:
        return chosen.fault.happenings
    return MENU[word_of(address)].happenings


def disguise(answer: Answer, fault: Fault) -> Answer:
    """The answer as the fault lets it out."""
    if fault.reply is not None:
        answer = answer_of(fault.reply)
    body = answer.body
    if fault.spoil is Spoil.CUT_IN_HALF:
        body = body[: len(body) // 2]
    if fault.spoil is Spoil.NOT_UTF8:
        body = body.replace(b"accepted", b"accept\xe9\xff")
    return replace(
        answer,
        status=fault.status or answer.status,
        body=body,
        manner=fault.manner,
        delay_seconds=fault.delay_seconds,
    )


def enter(
    db: sqlite3.Connection,
    received: Received,
    message: Message,
    chosen: Chosen,
    answer: Answer,
    outcome: str,
) -> int:
    return enter_request(
        db,
        received,
        outcome=outcome,
        status=None if answer.manner in UNANSWERED else answer.status,
        answer=answer.manner,
        tag=message.tag,
        word=chosen.word,
    )
