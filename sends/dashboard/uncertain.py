"""Emails of which nobody knows whether the provider took them: the evidence, and the ways out."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from django.contrib import messages as notices
from django.db.models import Case, Exists, OuterRef, QuerySet, Value, When
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone
from django.utils.dateformat import format as formatted
from django.views.decorators.http import require_POST, require_safe

from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.conflicts import Note, in_readers_time, note_of
from sends.dashboard.findings import Accepted, Confirming, Named, NotAccepted
from sends.dashboard.hints import hints_of
from sends.dashboard.message import UNREADABLE, decide, named_version
from sends.dashboard.promises import promises_of
from sends.dashboard.requests import go_to, wants_fragment
from sends.dashboard.states import delivery_chips
from sends.dashboard.story import Story, story_of
from sends.dashboard.timeline import Entry, Part, timeline_of
from sends.dashboard.window import window_of
from sends.lifecycle import requeue, resolve
from sends.lifecycle.accounts import contract_of
from sends.lifecycle.refusals import Refused
from sends.models import Direction, Evidence, EvidenceKind, Role, SendIntent, database_now
from sends.rules.contracts import Recovery
from sends.rules.statuses import DeliveryState, Status
from sends.templatetags.outbox import WORDS

MOST_ROWS = 200


# The list


@dataclass(frozen=True)
class Row:
    """One of them: until when it may be replayed, and whether a finding waits for a second look."""

    intent: SendIntent
    left: timedelta | None
    gone: str = ""

    @property
    def number(self) -> int:
        return self.intent.action.number

    @property
    def is_found(self) -> bool:
        return cast(bool, getattr(self.intent, "is_found", False))


@require_safe
@for_role(Role.VIEWER)
def index(request: MemberRequest) -> HttpResponse:
    now = database_now()
    rows = [_row(intent, now) for intent in _waiting(request, now)[: MOST_ROWS + 1]]
    context = {"now": now, "rows": rows[:MOST_ROWS], "is_cut": len(rows) > MOST_ROWS}
    return render(request, "sends/uncertain/index.html", context)


def _waiting(request: MemberRequest, now: datetime) -> QuerySet[SendIntent]:
    """Those that can still be replayed first, the sooner that ends the earlier; then the oldest."""
    found = Evidence.objects.filter(
        intent=OuterRef("pk"),
        kind=EvidenceKind.PERSON,
        direction=Direction.NOT_ACCEPTED,
        proves=False,
        found_at__gte=OuterRef("status_at"),
    )
    is_over = Case(When(replay_until__gt=now, then=Value(0)), default=Value(1))
    return (
        SendIntent.objects.filter(tenant=request.tenant, status=Status.UNCERTAIN)
        .select_related("action", "agent", "account")
        .annotate(is_found=Exists(found), is_over=is_over)
        .order_by("is_over", Case(When(is_over=0, then="replay_until")), "status_at", "pk")
    )


def _row(intent: SendIntent, now: datetime, gone: str = "") -> Row:
    is_open = intent.replay_until is not None and intent.replay_until > now
    return Row(intent, intent.replay_until - now if is_open and intent.replay_until else None, gone)


def live_rows(request: MemberRequest, ids: Sequence[uuid.UUID], page: str, now: datetime) -> str:
    """Of the rows that a list shows, those that were settled meanwhile."""
    intents = SendIntent.objects.filter(tenant=request.tenant, pk__in=ids)
    settled = intents.exclude(status=Status.UNCERTAIN).select_related("action") if ids else []
    rows = [_row(intent, now, settled_words(intent, ())) for intent in settled]
    return render_to_string("sends/uncertain/_live.html", {"rows": rows, "now": now}, request)


# One of them


@require_safe
@for_role(Role.VIEWER)
def detail(request: MemberRequest, number: int) -> HttpResponse:
    story = _story(request, number)
    if wants_fragment(request) and story.shown.status == Status.UNCERTAIN:
        # Polled: what somebody is writing into the forms is not taken away from them.
        return HttpResponse(status=204)
    return _shown(request, story)


def _story(request: MemberRequest, number: int) -> Story:
    """The message with its uncertain version in front; the current one where none is."""
    story = story_of(request.tenant, number)
    if story is None:
        raise Http404("There is no such email here.")
    uncertain = [v for v in story.versions if v.status == Status.UNCERTAIN]
    return Story(story.versions, uncertain[0]) if uncertain else story


def _shown(
    request: MemberRequest,
    story: Story,
    *,
    note: Note | None = None,
    says: str = "",
    status: int = 200,
    typed: tuple[str, Named] | None = None,
) -> HttpResponse:
    """`typed` is a form with its mistakes, and the name under which the page has it."""
    now = database_now()
    is_open = story.shown.status == Status.UNCERTAIN
    context: dict[str, Any] = {
        "now": now,
        "intent": story.shown,
        "number": story.action.number,
        "is_open": is_open,
        "since": now - story.shown.status_at,
        "more": story.shown.recipient_count - 1,
        "note": note or (None if is_open else settled_note(story)),
        "says": says,
        "entries": [entry for entry in timeline_of(story) if _belongs(entry, story)],
        "hints": _hints(story, now),
        "has_errors": typed is not None,
        **_promises(story),
        **(_ways_out(request, story, now) if is_open else {}),
        **(dict([typed]) if typed is not None else {}),
    }
    name = "_changed" if wants_fragment(request) else "detail"
    return render(request, f"sends/uncertain/{name}.html", context, status=status)


def _belongs(entry: Entry, story: Story) -> bool:
    """What happened to this version on its way: decisions, attempts, and what was found out."""
    return entry.version == story.shown.version and entry.part is not Part.DELIVERY


def _hints(story: Story, now: datetime) -> list[dict[str, Any]]:
    hints = hints_of(story, now)
    return [
        {"title": side.label, "hints": [hint for hint in hints if hint.direction == side]}
        for side in (Direction.ACCEPTED, Direction.NOT_ACCEPTED)
    ]


def _promises(story: Story) -> dict[str, Any]:
    contract = contract_of(story.shown.account)
    return {"contract": contract, "promises": promises_of(contract)}


def _ways_out(request: MemberRequest, story: Story, now: datetime) -> dict[str, Any]:
    intent, contract = story.shown, contract_of(story.shown.account)
    refusal = resolve.may_replay(intent, now)
    waiting = resolve.awaiting_confirmation(intent) if story.evidence else None
    alone = not intent.tenant.policy.second_operator
    named = {"version": intent.version}
    seen = _seen_by_look_up(story)
    return {
        "window": window_of(intent, story.own_attempts, contract, now),
        "may_settle": request.membership.may(Role.OPERATOR),
        "replay_refused": in_readers_time(refusal) if refusal is not None else "",
        "may_replay": refusal is None,
        "sends_a_draft": contract.recovery is Recovery.ONE_SHOT,
        "asks_first": contract.recovery is Recovery.LOOK_UP,
        "may_ask": contract.has_look_up,
        "finding": waiting,
        "is_my_finding": waiting is not None and waiting.person_id == request.user.pk,
        "alone": alone,
        "named": Named(initial=named),
        "accepted": Accepted(initial={**named, "value": seen}, prefix=ACCEPTED),
        "not_accepted": NotAccepted(initial=named, alone=alone, prefix=NOT_ACCEPTED),
        "confirming": Confirming(initial=named, prefix=CONFIRMING),
        **_beside(request, intent, now),
    }


# Two forms with fields of one name stand on one page.
ACCEPTED, NOT_ACCEPTED, CONFIRMING = "accepted", "not-accepted", "confirming"


def _seen_by_look_up(story: Story) -> str:
    """What the provider answered last, where that points to acceptance and proves nothing."""
    seen = [
        evidence.value
        for evidence in story.evidence
        if evidence.kind == EvidenceKind.LOOK_UP and evidence.direction == Direction.ACCEPTED
    ]
    return seen[-1] if seen else ""


def _beside(request: MemberRequest, intent: SendIntent, now: datetime) -> dict[str, Any]:
    """Its place in the list, and the numbers before and after it."""
    rows = list(_waiting(request, now).values_list("pk", "action__number")[:MOST_ROWS])
    places = [pk for pk, _ in rows]
    if intent.pk not in places:
        return {}
    at = places.index(intent.pk)
    return {
        "place": at + 1,
        "count": len(rows),
        "before": rows[at - 1][1] if at else None,
        "after": rows[at + 1][1] if at + 1 < len(rows) else None,
    }


# Settled


def settled_note(story: Story) -> Note:
    words = settled_words(story.shown, [d.state for d in story.deliveries])
    text = "" if story.shown.end_reason == "" else story.shown.end_reason
    tone = "move" if story.shown.accepted_at is not None else "rest"
    return Note(tone, "ok", words, text)


def settled_words(intent: SendIntent, states: Sequence[str]) -> str:
    """What settled it, or what is being done: "Settled: delivered at 14:52"."""
    at = formatted(timezone.localtime(intent.status_at), "H:i")
    status = Status(intent.status)
    if intent.accepted_at is not None:
        known = [state for state in states if state != DeliveryState.ACCEPTED]
        label = WORDS[delivery_chips(known)[0].state] if known else "accepted by provider"
        return f"Settled: {label.lower()} at {at}"
    if status is Status.DEAD_LETTER:
        return f"Settled: found not accepted at {at}"
    if status in (Status.RETRY_SCHEDULED, Status.IN_FLIGHT):
        return "It is being replayed; the answer decides what follows"
    return f"Settled: {status.label.lower()} at {at}"


# Settling

Settle = Callable[[SendIntent], SendIntent]


@require_POST
@for_role(Role.OPERATOR)
def replay(request: MemberRequest, number: int) -> HttpResponse:
    form = Named(request.POST)
    return _settled(
        request,
        number,
        form,
        "replay",
        lambda intent: resolve.replay(intent.pk, person=request.user),
        f"#{number} is replayed with the same key.",
    )


@require_POST
@for_role(Role.OPERATOR)
def ask_provider(request: MemberRequest, number: int) -> HttpResponse:
    """Nothing is kept of the form: asking twice does no harm, and no transaction may be open."""
    intent = named_version(request, number)
    try:
        evidence = resolve.ask_provider(intent.pk, person=request.user)
    except Refused as refused:
        return _refused(request, number, refused)
    return _went(request, number, f"{evidence.summary}.")


@require_POST
@for_role(Role.OPERATOR)
def mark_accepted(request: MemberRequest, number: int) -> HttpResponse:
    form = Accepted(request.POST, prefix=ACCEPTED)

    def mark(intent: SendIntent) -> SendIntent:
        given = form.cleaned_data
        return resolve.mark_accepted(
            intent.pk,
            person=request.user,
            value=given["value"],
            note=given["note"],
            provider_message_id=given["provider_message_id"],
        )

    words = f"#{number} is recorded as accepted by the provider."
    return _settled(request, number, form, "mark_accepted", mark, words, name="accepted")


@require_POST
@for_role(Role.OPERATOR)
def mark_not_accepted(request: MemberRequest, number: int) -> HttpResponse:
    alone = not request.tenant.policy.second_operator
    form = NotAccepted(request.POST, alone=alone, prefix=NOT_ACCEPTED)

    def mark(intent: SendIntent) -> SendIntent:
        given = form.cleaned_data
        found = resolve.mark_not_accepted(
            intent.pk, person=request.user, value=given["value"], note=given["note"]
        )
        return _go_on(request, found, given.get("then", ""), given["note"])

    words = f"#{number} is recorded as not accepted."
    if not alone:
        words = "The finding is recorded. Another operator has to confirm it."
    return _settled(request, number, form, "mark_not_accepted", mark, words, name="not_accepted")


@require_POST
@for_role(Role.OPERATOR)
def confirm_not_accepted(request: MemberRequest, number: int) -> HttpResponse:
    form = Confirming(request.POST, prefix=CONFIRMING)

    def confirm(intent: SendIntent) -> SendIntent:
        given = form.cleaned_data
        found = resolve.confirm_not_accepted(intent.pk, person=request.user, note=given["note"])
        return _go_on(request, found, given["then"], given["note"])

    words = f"#{number} is recorded as not accepted."
    return _settled(
        request, number, form, "confirm_not_accepted", confirm, words, name="confirming"
    )


def _go_on(request: MemberRequest, intent: SendIntent, then: str, note: str) -> SendIntent:
    """The next step that was chosen together with the finding; editing has a page of its own."""
    if then == "resend":
        return resolve.resend(intent.pk, person=request.user, reason=note)
    if then == "close":
        return requeue.close(intent.pk, person=request.user, reason=note)
    return intent


def _settled(
    request: MemberRequest,
    number: int,
    form: Named,
    verb: str,
    settle: Settle,
    words: str,
    *,
    name: str = "",
) -> HttpResponse:
    story = _story(request, number)
    if not form.is_valid():
        if not name or story.shown.status != Status.UNCERTAIN:
            return _shown(request, story, note=UNREADABLE, status=422)
        return _shown(request, story, status=422, typed=(name, form))
    versions = {version.version: version for version in story.versions}
    intent = versions.get(form.cleaned_data["version"])
    if intent is None:
        raise Http404("There is no such version here.")
    refused = decide(request, form, verb, intent, lambda: settle(intent))
    if refused is not None:
        return _refused(request, number, refused)
    if form.cleaned_data.get("then") == "edit":
        return go_to(request, reverse("dashboard:edit", args=[number]))
    return _went(request, number, words)


def _refused(request: MemberRequest, number: int, refused: Refused) -> HttpResponse:
    story = _story(request, number)
    note = note_of(refused)
    if story.shown.status != Status.UNCERTAIN:
        settled = settled_note(story)
        note = Note(settled.tone, settled.icon_name, settled.title, in_readers_time(refused))
    return _shown(request, story, note=note, status=409)


def _went(request: MemberRequest, number: int, words: str) -> HttpResponse:
    if wants_fragment(request):
        return _shown(request, _story(request, number), says=words)
    notices.success(request, words)
    return redirect("dashboard:uncertain_one", number)


urlpatterns = [
    path("uncertain/", index, name="uncertain"),
    path("uncertain/<int:number>/", detail, name="uncertain_one"),
    path("messages/<int:number>/replay/", replay, name="replay"),
    path("messages/<int:number>/ask-provider/", ask_provider, name="ask_provider"),
    path("messages/<int:number>/mark-accepted/", mark_accepted, name="mark_accepted"),
    path("messages/<int:number>/mark-not-accepted/", mark_not_accepted, name="mark_not_accepted"),
    path(
        "messages/<int:number>/confirm-not-accepted/",
        confirm_not_accepted,
        name="confirm_not_accepted",
    ),
]
