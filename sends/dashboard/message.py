"""One email with all its history, and what may be done about it."""

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import messages as notices
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.approvals import version_of
from sends.dashboard.attempts import sentence
from sends.dashboard.conflicts import Note, note_of
from sends.dashboard.forms import Asked, Deciding, WithReason, ask_why
from sends.dashboard.progress import seal_check, stations_of
from sends.dashboard.requests import number_in, wants_fragment
from sends.dashboard.states import chips_of
from sends.dashboard.story import Story, story_of
from sends.dashboard.timeline import Entry, Part, timeline_of
from sends.lifecycle import cancelling, requeue, resolve, restores, results
from sends.lifecycle.accounts import contract_of
from sends.lifecycle.refusals import Refused
from sends.models import Membership, Role, SendIntent, database_now, new_id
from sends.rules.statuses import UNFINISHED, Hold, Status, holds_in


@require_safe
@for_role(Role.VIEWER)
def message(request: MemberRequest, number: int, version: int | None = None) -> HttpResponse:
    story = story_or_404(request, number, version)
    if wants_fragment(request) and "seen" in request.GET:
        return _if_changed(request, story)
    return shown(request, story)


def story_or_404(request: MemberRequest, number: int, version: int | None = None) -> Story:
    story = story_of(request.tenant, number, version)
    if story is None:
        raise Http404("There is no such email here.")
    return story


def _if_changed(request: MemberRequest, story: Story) -> HttpResponse:
    """For a page that polls: the message as it is now, or nothing if that is what it shows."""
    context = context_of(request, story)
    if context["mark"] == request.GET["seen"]:
        return HttpResponse(status=204)
    return render(request, "sends/message/_message.html", context)


def shown(
    request: MemberRequest,
    story: Story,
    *,
    note: Note | None = None,
    says: str = "",
    status: int = 200,
) -> HttpResponse:
    name = "_changed" if wants_fragment(request) else "detail"
    context = context_of(request, story) | {"note": note, "says": says}
    return render(request, f"sends/message/{name}.html", context, status=status)


def context_of(request: MemberRequest, story: Story) -> dict[str, Any]:
    now, intent = database_now(), story.shown
    entries = timeline_of(story)
    part = request.GET.get("show", "")
    context = {
        "now": now,
        "intent": intent,
        "story": story,
        "number": story.action.number,
        "chips": chips_of(intent, story.deliveries),
        "waiting": story.waiting(now),
        "end_reason": sentence(intent.end_reason),
        "stations": stations_of(story, now),
        "entries": [e for e in entries if part in ("", e.part) or part not in set(Part)],
        "parts": _parts(entries, part),
        "show": part if part in set(Part) else "",
        "seal": seal_check(story),
        "key_until": _key_until(intent),
        "may": Actions(story, request.membership),
        "follow_ups": story.follow_ups,
        "url": _url(story),
        "action_id": new_id(),
    }
    return context | {"mark": _mark(context), "lives": intent.status in LIVES}


# As long as it is in one of these a page about it looks again.
LIVES = UNFINISHED | {Status.SUBMITTED, Status.DONE}


def _mark(context: dict[str, Any]) -> str:
    """Of what the page says that can change; two pages with one mark say the same."""
    intent: SendIntent = context["intent"]
    said = (
        intent.fence,
        intent.holds,
        intent.closed_at,
        intent.next_attempt_at,
        [(d.state, d.reason) for d in context["story"].deliveries],
        [version.version for version in context["story"].versions],
        [(entry.at, entry.title) for entry in context["entries"]],
        context["chips"],
        context["waiting"] and context["waiting"].sentence,
        context["seal"],
    )
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


def _url(story: Story) -> str:
    number = story.action.number
    if story.is_current:
        return reverse("dashboard:message", args=[number])
    return reverse("dashboard:message_version", args=[number, story.shown.version])


def _parts(entries: list[Entry], part: str) -> list[dict[str, Any]]:
    """The ways to narrow the timeline, each with how much it shows."""
    counts = {name: sum(entry.part == name for entry in entries) for name in Part}
    words = {Part.ATTEMPTS: "Attempts", Part.DECISIONS: "Decisions", Part.DELIVERY: "Delivery"}
    narrowed = [
        {"words": f"{label} {counts[name]}", "query": f"?show={name}", "is_current": part == name}
        for name, label in words.items()
    ]
    return [{"words": "Everything", "query": "?", "is_current": not part}, *narrowed]


def _key_until(intent: SendIntent) -> datetime | None:
    """Until when the provider knows the key, once something may have reached it."""
    if intent.window_opened_at is None:
        return None
    contract = contract_of(intent.account)
    return contract.window_ends(intent.window_opened_at) if contract.may_replay else None


class Actions:
    """What may be done about the version in front, by this person. The lifecycle asks again."""

    def __init__(self, story: Story, membership: Membership) -> None:
        self.intent = story.shown
        self.is_current = story.is_current
        self.membership = membership

    @property
    def has_content(self) -> bool:
        return self.intent.purged_at is None

    @property
    def operate(self) -> bool:
        return self.membership.may(Role.OPERATOR)

    @property
    def read(self) -> bool:
        return self.membership.may(Role.APPROVER)

    @property
    def approve(self) -> bool:
        awaits = self.intent.status == Status.AWAITING_APPROVAL
        return awaits and self.is_current and self.membership.may(Role.APPROVER)

    @property
    def edit(self) -> bool:
        """As long as the provider has not taken it, and cannot have."""
        taken = self.intent.in_doubt or self.intent.accepted_at is not None
        return (
            self.intent.status in EDITABLE
            and not taken
            and self.has_content
            and self.is_current
            and self.membership.may(Role.APPROVER)
        )

    @property
    def follow_up(self) -> bool:
        may_be_out = self.intent.in_doubt or self.intent.accepted_at is not None
        sending = self.intent.status == Status.IN_FLIGHT
        said = self.has_content and (may_be_out or sending)
        return said and self.membership.may(Role.APPROVER)

    @property
    def cancel(self) -> bool:
        return (
            self.intent.status in CANCELLABLE
            and not self.intent.in_doubt
            and self.intent.accepted_at is None
            and self.is_current
            and self.membership.may(Role.OPERATOR)
        )

    @property
    def release(self) -> bool:
        """From the hold that a restore has put on it."""
        is_held = Hold.RESTORED in holds_in(self.intent.holds)
        return is_held and self.is_current and self.membership.may(Role.OPERATOR)

    @property
    def retry_now(self) -> bool:
        scheduled = self.intent.status == Status.RETRY_SCHEDULED
        return scheduled and self.membership.may(Role.OPERATOR)

    @property
    def settle(self) -> bool:
        return self.intent.status == Status.UNCERTAIN

    @property
    def resend(self) -> bool:
        dead = self.intent.status == Status.DEAD_LETTER and self.intent.accepted_at is None
        may = self.is_current and self.membership.may(Role.OPERATOR)
        return dead and self.has_content and may

    @property
    def dead_letter(self) -> bool:
        return self.intent.status == Status.DEAD_LETTER


EDITABLE = frozenset(
    {
        Status.AWAITING_APPROVAL,
        Status.CHANGES_REQUESTED,
        Status.QUEUED,
        Status.RETRY_SCHEDULED,
        Status.DEAD_LETTER,
    }
)
CANCELLABLE = EDITABLE


# What is done about it


Decide = Callable[..., SendIntent]


@require_POST
@for_role(Role.OPERATOR)
def retry_now(request: MemberRequest, number: int) -> HttpResponse:
    intent, form = named_version(request, number), Deciding(request.POST)
    if not form.is_valid():
        return shown(request, story_or_404(request, number), note=UNREADABLE, status=422)
    refused = decide(
        request,
        form,
        "retry_now",
        intent,
        lambda: requeue.retry_now(intent.pk, person=request.user),
    )
    if refused is not None:
        return shown(request, story_or_404(request, number), note=note_of(refused), status=409)
    return _done(request, number, f"#{number} is tried again now.")


@require_http_methods(["GET", "POST"])
@for_role(Role.OPERATOR)
def cancel(request: MemberRequest, number: int) -> HttpResponse:
    asked = Asked(
        f"Cancel #{number}",
        WHY,
        "Cancel this email",
        "Cancelling…",
        "is-stop",
        "minus",
        reverse("dashboard:message", args=[number]),
    )
    explains = "It is not sent, and its agent can read why. That cannot be undone."
    did = f"#{number} is not sent."
    return _with_reason(request, number, asked, explains, "cancel", cancelling.cancel, did)


@require_http_methods(["GET", "POST"])
@for_role(Role.OPERATOR)
def release(request: MemberRequest, number: int) -> HttpResponse:
    asked = Asked(
        f"Release #{number}",
        WHY,
        "Release it",
        "Releasing…",
        "is-main",
        "play",
        reverse("dashboard:message", args=[number]),
    )
    explains = (
        "The database was restored from a backup, and this email may have been sent in the time "
        "that it has forgotten. Look at the provider first; say as the reason where you looked."
    )
    did = f"#{number} is released."
    return _with_reason(request, number, asked, explains, "release", restores.release, did)


@require_http_methods(["GET", "POST"])
@for_role(Role.OPERATOR)
def resend(request: MemberRequest, number: int) -> HttpResponse:
    asked = Asked(
        f"Send #{number} again",
        WHY,
        "Send it again",
        "Sending…",
        "is-main",
        "send",
        reverse("dashboard:message", args=[number]),
    )
    explains = (
        "While a repeat is harmless it is the same version under the same key. Where it is not, "
        "it is a new version with the same content and a new key, which a person has to approve."
    )
    did = f"#{number} is on its way again."
    return _with_reason(request, number, asked, explains, "resend", resolve.resend, did)


WHY = "sends/message/_why.html"


def named_version(request: MemberRequest, number: int) -> SendIntent:
    """The version that the person saw, as the request names it; else the current one."""
    word = request.POST.get("version") or request.GET.get("version") or ""
    return version_of(request, number, number_in(word))


def decide(
    request: MemberRequest, form: Deciding, verb: str, about: SendIntent, do: Decide
) -> Refused | None:
    """Let it be done once, however often this form is sent; why not, where it was refused."""

    def result() -> results.Result:
        intent = do()
        return {"status": str(intent.status), "version": intent.version}

    try:
        results.once(request.user, form.once_about(about.pk), verb, database_now(), result)
    except Refused as refused:
        return refused
    return None


UNREADABLE = Note(
    "wait", "alert", "This form could not be read", "Nothing was changed. Do it again from here."
)


def _with_reason(
    request: MemberRequest,
    number: int,
    asked: Asked,
    explains: str,
    verb: str,
    do: Decide,
    did: str,
) -> HttpResponse:
    """Ask for the reason, then decide."""
    intent = named_version(request, number)
    context: dict[str, Any] = {"intent": intent, "version": intent.version, "explains": explains}
    form = WithReason(request.POST or None)
    if request.method != "POST":
        return ask_why(request, asked, form, status=200, **context)
    if not form.is_valid():
        return ask_why(request, asked, form, status=422, **context)
    reason = form.cleaned_data["reason"]
    refused = decide(
        request, form, verb, intent, lambda: do(intent.pk, person=request.user, reason=reason)
    )
    if refused is not None:
        return ask_why(request, asked, form, status=409, note=note_of(refused), **context)
    return _done(request, number, did)


def _done(request: MemberRequest, number: int, words: str) -> HttpResponse:
    if wants_fragment(request):
        return shown(request, story_or_404(request, number), says=words)
    notices.success(request, words)
    return redirect("dashboard:message", number)


urlpatterns = [
    path("messages/<int:number>/", message, name="message"),
    path("messages/<int:number>/v/<int:version>/", message, name="message_version"),
    path("messages/<int:number>/retry-now/", retry_now, name="retry_now"),
    path("messages/<int:number>/cancel/", cancel, name="cancel"),
    path("messages/<int:number>/release/", release, name="release"),
    path("messages/<int:number>/resend/", resend, name="resend"),
]
