"""An uncertain intent becomes certain: by the provider's word, or by an operator's decision.

Every way is an operator's and goes on the record. None of them sends anything by itself that the
provider's contract does not cover.
"""

import uuid
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime

from django.db import transaction

from sends.lifecycle import audit, requeue, versions
from sends.lifecycle.acceptance import accept, accept_late, record_evidence
from sends.lifecycle.accounts import contract_of, facts_of
from sends.lifecycle.obstacles import moment, refuse_purged, refuse_suppressed
from sends.lifecycle.refusals import (
    AlreadyDecided,
    DigestDiffers,
    InFlight,
    Invalid,
    NotAllowed,
    NotPossible,
    Refused,
    TooLate,
)
from sends.lifecycle.roles import require_role
from sends.lifecycle.transitions import lock_intent, move
from sends.models import (
    Direction,
    Evidence,
    EvidenceKind,
    Person,
    Role,
    SendIntent,
    database_now,
)
from sends.providers.adapter import CredentialError, LookUp, NotSupported
from sends.providers.http import Http
from sends.providers.registry import adapter_for
from sends.rules.contracts import Contract, Recovery
from sends.rules.payloads import seal, thaw
from sends.rules.statuses import Status, holds_in

__all__ = [
    "accept",
    "accept_late",
    "ask_provider",
    "awaiting_confirmation",
    "confirm_not_accepted",
    "mark_accepted",
    "mark_not_accepted",
    "may_replay",
    "record_evidence",
    "replay",
    "resend",
]


def replay(intent_id: uuid.UUID, *, person: Person, now: datetime | None = None) -> SendIntent:
    """Let the same bytes go once more under the same key, or the same one-shot token.

    Only where the contract makes that harmless, and never before a wait that is not over. The
    provider's answer decides what follows.
    """
    with transaction.atomic():
        now = now or database_now()
        intent = _lock_uncertain(intent_id, person)
        _refuse_replay(intent, now)
        until = replay_until(intent, contract_of(intent.account))
        at = _earliest(intent, now)
        move(
            intent,
            Status.RETRY_SCHEDULED,
            now=now,
            next_attempt_at=at,
            replay_until=until,
            retrying_since=now,
            retries_counted=0,
            tries=0,
            in_progress_since=None,
            asked_by=person,
            end_reason="",
        )
        facts = {"next_attempt_at": at.isoformat(), "replay_until": until and until.isoformat()}
        _record(intent, person, "replay", now=now, facts=facts)
    return intent


def ask_provider(intent_id: uuid.UUID, *, person: Person, now: datetime | None = None) -> Evidence:
    """Look it up at the provider. One hit that carries our key or tag settles it by itself.

    Anything else is evidence for a person; finding nothing proves nothing. The provider is asked
    with no transaction open, and whatever settles the intent meanwhile stands.
    """
    intent = SendIntent.objects.select_related("account", "tenant").get(pk=intent_id)
    require_role(person, intent.tenant, Role.OPERATOR)
    if intent.status != Status.UNCERTAIN:
        raise _elsewhere(intent)
    if _went_to_another_organisation(intent):
        raise NotPossible(
            "The account has changed since: another organisation at the provider is asked now, "
            "which cannot know this email."
        )
    answer = _look_up(intent)
    with transaction.atomic():
        now = now or database_now()
        intent = lock_intent(intent_id)
        found = answer.proves
        evidence = record_evidence(
            intent,
            kind=EvidenceKind.LOOK_UP,
            direction=_points_to(answer),
            proves=found is not None,
            summary=f"The provider was {answer.summary}",
            value=found.provider_message_id if found else answer.value,
            person=person,
            now=now,
        )
        if found is not None:
            accept(intent, now=now, provider_message_id=found.provider_message_id)
        _record(intent, person, "ask_provider", facts={"answer": answer.summary}, now=now)
    return evidence


def mark_accepted(
    intent_id: uuid.UUID,
    *,
    person: Person,
    value: str,
    note: str,
    provider_message_id: str = "",
    now: datetime | None = None,
) -> SendIntent:
    """An operator has found that the provider took it. `value` is what shows it, `note` why."""
    value, note = _finding(value, note)
    with transaction.atomic():
        now = now or database_now()
        intent = _lock_uncertain(intent_id, person)
        record_evidence(
            intent,
            kind=EvidenceKind.PERSON,
            direction=Direction.ACCEPTED,
            proves=True,
            summary=note,
            value=value,
            person=person,
            now=now,
        )
        accept(intent, now=now, provider_message_id=provider_message_id.strip())
        _record(intent, person, "mark_accepted", reason=note, facts={"value": value}, now=now)
    return intent


def mark_not_accepted(
    intent_id: uuid.UUID,
    *,
    person: Person,
    value: str,
    note: str,
    now: datetime | None = None,
) -> SendIntent:
    """An operator has found that the provider did not take it.

    Where the tenant's policy wants a second operator the finding waits, and the intent stays
    uncertain, until another one confirms it; see `confirm_not_accepted`.
    """
    value, note = _finding(value, note)
    with transaction.atomic():
        intent = _lock_uncertain(intent_id, person)
        now = _no_earlier_than(intent, now)
        waiting = awaiting_confirmation(intent)
        if waiting is not None:
            raise AlreadyDecided(
                f"{waiting.person} has found this already; another operator has to confirm it.",
                who=str(waiting.person),
                at=waiting.found_at,
            )
        alone = not intent.tenant.policy.second_operator
        _not_accepted(intent, person, value=value, note=note, proves=alone, now=now)
        if alone:
            _end_doubt(intent, f"{person} found that it was not accepted: {note}", now)
        _record(intent, person, "mark_not_accepted", reason=note, facts={"value": value}, now=now)
    return intent


def confirm_not_accepted(
    intent_id: uuid.UUID, *, person: Person, note: str = "", now: datetime | None = None
) -> SendIntent:
    """A second operator agrees with the finding that waits: now it is proof, and doubt ends."""
    with transaction.atomic():
        intent = _lock_uncertain(intent_id, person)
        now = _no_earlier_than(intent, now)
        first = awaiting_confirmation(intent)
        if first is None:
            raise NotPossible("No finding waits for a second operator; mark it as not accepted.")
        if first.person_id == person.pk:
            raise NotAllowed("You made this finding; another operator has to confirm it.")
        note = note.strip() or first.summary
        _not_accepted(
            intent, person, value=first.value, note=note, proves=True, confirms=first, now=now
        )
        found = f"{first.person} found, and {person} confirmed, that it was not accepted: {note}"
        _end_doubt(intent, found, now)
        facts = {"finding": str(first.pk), "found_by": str(first.person)}
        _record(intent, person, "confirm_not_accepted", reason=note, facts=facts, now=now)
    return intent


def resend(
    intent_id: uuid.UUID, *, person: Person, reason: str, now: datetime | None = None
) -> SendIntent:
    """Send again what was found not accepted; the answer is the intent that will go.

    While the provider still knows the key it is the same version, requeued. After that it is a
    new version with the same content under a new key, which a person has to approve.
    """
    with transaction.atomic():
        now = now or database_now()
        intent = lock_intent(intent_id)
        require_role(person, intent.tenant, Role.OPERATOR)
        refusal = requeue.may_requeue(intent, now)
        if refusal is None:
            return requeue.requeue(intent_id, person=person, reason=reason, now=now)
        if refusal.offer != "resend":
            raise refusal
        again = versions.create_version(
            intent.action,
            thaw(bytes(intent.payload.body)).message,
            author=intent.author,
            agent=intent.agent,
            resend_of=intent,
            reason=reason,
            needs_person=True,
            now=now,
        )
        _record(intent, person, "resend", reason=reason, facts={"version": again.version}, now=now)
    return again


def may_replay(intent: SendIntent, now: datetime) -> Refused | None:
    """Why the same request may not go once more; None where it may.

    Read without a lock, for screens: `replay` asks again.
    """
    try:
        _refuse_replay(intent, now)
    except Refused as refusal:
        return refusal
    return None


def replay_until(intent: SendIntent, contract: Contract) -> datetime | None:
    """The last moment for a replay; None where there is no end to it, or no contract."""
    if not contract.may_replay or intent.window_opened_at is None:
        return None
    until = contract.replay_until(intent.window_opened_at)
    return min(until, intent.replay_until) if intent.replay_until else until


def awaiting_confirmation(intent: SendIntent) -> Evidence | None:
    """The finding "not accepted" that waits for a second operator.

    One from before the intent became uncertain again is about other attempts.
    """
    findings = Evidence.objects.filter(
        intent=intent,
        kind=EvidenceKind.PERSON,
        direction=Direction.NOT_ACCEPTED,
        proves=False,
        found_at__gte=intent.status_at,
    )
    return findings.select_related("person").order_by("pk").last()


def _lock_uncertain(intent_id: uuid.UUID, person: Person) -> SendIntent:
    intent = lock_intent(intent_id)
    require_role(person, intent.tenant, Role.OPERATOR)
    if intent.status != Status.UNCERTAIN:
        raise _elsewhere(intent)
    return intent


def _no_earlier_than(intent: SendIntent, now: datetime | None) -> datetime:
    """The time, but not from before the intent became uncertain.

    The clock may have been set back since, and a finding would seem to be about what was before.
    """
    return max(now or database_now(), intent.status_at)


def _elsewhere(intent: SendIntent) -> AlreadyDecided:
    """It is no longer where the person saw it; says what settled it."""
    proof = intent.evidence.filter(proves=True).select_related("person").order_by("pk").last()
    label = Status(intent.status).label.lower()
    return AlreadyDecided(
        f"It is {label} meanwhile." + (f" {proof.summary}" if proof else ""),
        who=str(proof.person) if proof and proof.person else "system",
        at=intent.status_at,
    )


def _refuse_replay(intent: SendIntent, now: datetime) -> None:
    if intent.status != Status.UNCERTAIN:
        raise _elsewhere(intent)
    for hold in holds_in(intent.holds):
        raise NotPossible(hold.label)
    if intent.attempts.filter(closed_at=None).exists():
        raise InFlight("An attempt is still open; wait until it has ended.")
    refuse_purged(intent)
    if seal(bytes(intent.payload.body)) != intent.digest or intent.approved_digest != intent.digest:
        raise DigestDiffers("The stored email is not what was approved, so it is not sent.")
    if _went_to_another_organisation(intent):
        raise NotPossible(
            "The account has changed since: another organisation at the provider does not know "
            "the key, and would send a second email."
        )
    refuse_suppressed(intent)
    _refuse_outside_window(intent, contract_of(intent.account), _earliest(intent, now))


def _refuse_outside_window(intent: SendIntent, contract: Contract, earliest: datetime) -> None:
    if contract.recovery is Recovery.ONE_SHOT and intent.token_stored:
        until = None
    elif contract.may_replay and intent.window_opened_at is not None:
        until = replay_until(intent, contract)
    else:
        raise NotPossible(
            "This provider gives no promise about a repeated request: "
            "a second one could send a second email."
        )
    if until is not None and earliest >= until:
        raise TooLate(
            f"Replaying could send a second email: the key is only good until {moment(until)}.",
            at=until,
        )
    if intent.deadline is not None and earliest >= intent.deadline:
        raise TooLate(
            "The deadline of this email has passed; a replay would come too late.",
            at=intent.deadline,
        )


def _went_to_another_organisation(intent: SendIntent) -> bool:
    attempts = intent.attempts.filter(may_have_arrived=True)
    return attempts.exclude(scope=intent.account.scope).exists()


def _look_up(intent: SendIntent) -> LookUp:
    adapter = adapter_for(intent.account.provider)
    wire_key = adapter.wire_key(intent.idempotency_key)
    try:
        account = facts_of(intent.account)
        with closing(Http(size=1)) as http:
            return adapter.look_up(account, http, tag=intent.pk.hex, wire_key=wire_key)
    except NotSupported as error:
        raise NotPossible("This provider cannot be asked about an email.") from error
    except CredentialError as error:
        raise NotPossible(f"The provider cannot be asked: {error}.") from error


def _points_to(answer: LookUp) -> Direction:
    if answer.error:
        return Direction.NEITHER
    return Direction.ACCEPTED if answer.found else Direction.NOT_ACCEPTED


def _earliest(intent: SendIntent, now: datetime) -> datetime:
    """When it may go at the soonest, whoever asks: some waits nobody cuts short."""
    floors = (intent.not_sooner_than, intent.not_before)
    return max([now, *(floor for floor in floors if floor is not None)])


def _finding(value: str, note: str) -> tuple[str, str]:
    value, note = value.strip(), note.strip()
    if not value:
        raise Invalid("Say what shows it: an id, a log line, an answer of the provider's support.")
    if not note:
        raise Invalid("Say in a note how you found it; it is kept as evidence.")
    return value, note


def _not_accepted(
    intent: SendIntent,
    person: Person,
    *,
    value: str,
    note: str,
    proves: bool,
    confirms: Evidence | None = None,
    now: datetime,
) -> None:
    record_evidence(
        intent,
        kind=EvidenceKind.PERSON,
        direction=Direction.NOT_ACCEPTED,
        proves=proves,
        summary=note,
        value=value,
        person=person,
        confirms=confirms,
        now=now,
    )


def _end_doubt(intent: SendIntent, found: str, now: datetime) -> None:
    """The window goes on binding the key: a finding is not the provider's own answer."""
    move(
        intent,
        Status.DEAD_LETTER,
        now=now,
        in_doubt=False,
        next_attempt_at=None,
        end_reason=found,
    )


def _record(
    intent: SendIntent,
    person: Person,
    verb: str,
    *,
    reason: str = "",
    facts: Mapping[str, object],
    now: datetime,
) -> None:
    audit.record(
        tenant=intent.tenant,
        actor=person.email,
        verb=verb,
        target=audit.message_target(intent),
        reason=reason,
        facts=facts,
        now=now,
    )
