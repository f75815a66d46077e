"""The inbox of support staff: read what an agent wrote, and approve it, send it back or undo."""

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.conflicts import Note, note_of
from sends.dashboard.emails import Email
from sends.dashboard.forms import Deciding
from sends.dashboard.inbox import VIEWS, Filters, Inbox, gone_among
from sends.dashboard.requests import htmx_of, number_in, page_of, room_of, wants_fragment
from sends.dashboard.story import story_of
from sends.dashboard.timeline import Entry, timeline_of
from sends.dashboard.undoing import undo_of
from sends.lifecycle import refusals, results, review
from sends.lifecycle.approval import standing_approvals
from sends.lifecycle.obstacles import why_decided
from sends.lifecycle.refusals import Refused
from sends.models import (
    Policy,
    ReasonCode,
    Role,
    SendIntent,
    Switch,
    Verdict,
    database_now,
)
from sends.rules.statuses import Status
from sends.templatetags.outbox import in_words


class Decision(Deciding):
    """What is decided about: the version and the digest that the person sees."""

    version = forms.IntegerField(min_value=1, widget=forms.HiddenInput)
    digest = forms.RegexField(r"^[0-9a-f]{64}\Z", widget=forms.HiddenInput)
    next = forms.IntegerField(required=False, widget=forms.HiddenInput)


class SendBack(Decision):
    """Ask for changes, or reject: with a reason, and words that the agent reads."""

    outcome = forms.ChoiceField(
        label="What should happen?",
        choices=[
            (Verdict.CHANGES, "Ask for changes: the agent may answer with a new version"),
            (Verdict.REJECT, "Reject: this email is not to be sent"),
        ],
        widget=forms.RadioSelect,
        error_messages={"required": "Choose what should happen"},
    )
    reason_code = forms.ChoiceField(
        label="Reason",
        choices=ReasonCode.choices,
        widget=forms.RadioSelect,
        error_messages={"required": "Choose a reason"},
    )
    note = forms.CharField(
        label="What should be different?",
        help_text="The agent reads this text through the API.",
        required=False,
        min_length=review.SHORTEST_NOTE,
        max_length=review.LONGEST_NOTE,
        widget=forms.Textarea(attrs={"rows": 3}),
    )

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        needs_words = given.get("outcome") == Verdict.CHANGES or (
            given.get("reason_code") == ReasonCode.OTHER
        )
        if needs_words and not given.get("note") and "note" not in self.errors:
            self.add_error("note", "Say what is wrong, so the agent can use it")
        return given


# Reading


@require_safe
@for_role(Role.VIEWER)
def approvals(request: MemberRequest) -> HttpResponse:
    """The list, with its first email beside it."""
    room = _Room(request)
    return room.page(room.inbox.choose(None), is_open=False)


@require_safe
@for_role(Role.VIEWER)
def approval(request: MemberRequest, number: int) -> HttpResponse:
    """The list with one email open; for HTMX that email alone."""
    intent = version_of(request, number)
    room = _Room(request)
    if wants_fragment(request):
        return room.opened(intent)
    return room.page(intent)


def version_of(request: MemberRequest, number: int, version: int | None = None) -> SendIntent:
    """One version of a message of this tenant, the current one unless it is named; or 404."""
    versions = SendIntent.objects.filter(tenant=request.tenant, action__number=number)
    versions = versions.current() if version is None else versions.filter(version=version)
    found = versions.select_related(
        "action", "agent", "run", "account", "sender", "author", "tenant"
    ).first()
    if found is None:
        raise Http404
    return found


# Deciding


@require_POST
@for_role(Role.APPROVER)
def approve(request: MemberRequest, number: int) -> HttpResponse:
    form = Decision(request.POST)
    intent = version_of(request, number, number_in(request.POST.get("version", "")))
    if not form.is_valid():
        return _Room(request).conflict(intent, UNREADABLE)

    def decide() -> results.Result:
        approved = review.approve(
            intent.pk, person=request.user, digest=form.cleaned_data["digest"]
        )
        return {"status": approved.status}

    return _decided(request, intent, form, "approve", decide)


@require_http_methods(["GET", "POST"])
@for_role(Role.APPROVER)
def send_back(request: MemberRequest, number: int) -> HttpResponse:
    """One form for both ways to say no; the address may say which, and what was typed before."""
    if request.method != "POST":
        intent = version_of(request, number)
        return _Room(request).send_back(intent, _send_back_form(request, intent), status=200)
    form = SendBack(request.POST)
    intent = version_of(request, number, number_in(request.POST.get("version", "")))
    if not form.is_valid():
        return _Room(request).send_back(intent, form, status=422)
    given = form.cleaned_data
    says_no = {Verdict.CHANGES: review.ask_for_changes, Verdict.REJECT: review.reject}

    def decide() -> results.Result:
        answered = says_no[Verdict(given["outcome"])](
            intent.pk,
            person=request.user,
            digest=given["digest"],
            note=given["note"],
            reason_code=given["reason_code"],
        )
        return {"status": answered.status}

    return _decided(request, intent, form, "send_back", decide)


@require_POST
@for_role(Role.APPROVER)
def undo(request: MemberRequest, number: int) -> HttpResponse:
    """Take back one's own decision; the email is opened again."""
    form = Deciding(request.POST)
    intent = version_of(request, number)
    if not form.is_valid():
        return _Room(request).undo_refused(intent, UNREADABLE)

    def decide() -> results.Result:
        return {"status": review.undo(intent.pk, person=request.user).status}

    try:
        results.once(request.user, form.once_about(intent.pk), "undo", database_now(), decide)
    except Refused as refused:
        return _Room(request).undo_refused(intent, note_of(refused))
    return _Room(request).undone(version_of(request, number))


def _send_back_form(request: MemberRequest, intent: SendIntent) -> SendBack:
    asked = request.GET
    return SendBack(
        initial={
            "version": intent.version,
            "digest": intent.digest,
            "outcome": asked.get("outcome", Verdict.CHANGES),
            "reason_code": asked.get("reason_code", ""),
            "note": asked.get("note", "")[: review.LONGEST_NOTE],
            "next": asked.get("next", ""),
        }
    )


def _decided(
    request: MemberRequest,
    intent: SendIntent,
    form: Decision,
    verb: str,
    decide: Callable[[], results.Result],
) -> HttpResponse:
    try:
        result, _ = results.once(
            request.user, form.once_about(intent.pk), verb, database_now(), decide
        )
    except Refused as refused:
        return _Room(request).refused(intent, refused, form)
    return _Room(request).went_on(intent, Status(result["status"]), form.cleaned_data["next"])


UNREADABLE = Note(
    "wait",
    "alert",
    "This form could not be read",
    "Nothing was decided. Open the email again and decide there.",
)


# Answering


class _Room:
    """The room as one person sees it in this request, and each of its answers."""

    def __init__(self, request: MemberRequest) -> None:
        self.request = request
        self.filters = Filters.read(request.GET)
        self.inbox = Inbox(request.membership, self.filters)
        self.now = database_now()

    def page(
        self, intent: SendIntent | None, *, is_open: bool = True, status: int = 200, **more: Any
    ) -> HttpResponse:
        """The whole page: the list, and the email beside it."""
        self.inbox.open(intent)
        context = {
            **self._list(),
            **(self._email(intent) if intent is not None else {}),
            "email_is_open": is_open,
            **more,
        }
        return render(self.request, "sends/approvals/index.html", context, status=status)

    def opened(self, intent: SendIntent) -> HttpResponse:
        """The email for HTMX, and the rows that it and the one before have in the list."""
        rows = self._rows_marked(intent) if htmx_of(self.request).target == "detail" else []
        context = {**self._email(intent), "email_is_open": True, "marked": rows}
        return render(self.request, "sends/approvals/_opened.html", context)

    def send_back(self, intent: SendIntent, form: SendBack, *, status: int) -> HttpResponse:
        template = "sends/approvals/_send_back.html"
        context: dict[str, Any] = {"send_back": form, "decide": template}
        if wants_fragment(self.request):
            context |= {"intent": intent, "query": self.filters.query()}
            return render(self.request, template, context, status=status)
        return self.page(intent, status=status, **context)

    def refused(self, intent: SendIntent, refused: Refused, form: Decision) -> HttpResponse:
        """Nothing was decided. What was typed goes along to the version that is there now."""
        note = note_of(refused)
        if isinstance(refused, refusals.AlreadyDecided):
            note = _about_the_first(intent, note, form, mine=refused.who == self.request.user.email)
        return self.conflict(intent, note, **self._ways_on(intent, refused, form))

    def conflict(self, intent: SendIntent, note: Note, **more: Any) -> HttpResponse:
        template = "sends/approvals/_conflict.html"
        context: dict[str, Any] = {"note": note, "decide": template, **more}
        if not wants_fragment(self.request):
            return self.page(intent, status=409, **context)
        _, after, _ = self.inbox.beside(intent)
        context |= {"intent": intent, "query": self.filters.query(), "after": after}
        response = render(self.request, template, context, status=409)
        return _into(response, "#decide")

    def _ways_on(self, intent: SendIntent, refused: Refused, form: Decision) -> dict[str, Any]:
        query = self.filters.query()
        if isinstance(refused, refusals.VersionChanged):
            newer = version_of(self.request, intent.action.number)
            changes = {"tab": "changes"} if newer.version > 1 else {}
            here = reverse("dashboard:approval", args=[intent.action.number])
            ways = {"newer": newer, "changes_url": _with(here + query, changes)}
            if isinstance(form, SendBack):
                kept = {name: form.data.get(name, "") for name in KEPT}
                back = reverse("dashboard:send_back", args=[intent.action.number])
                ways["again_url"] = _with(back + query, kept)
            return ways
        return {"may_edit": refused.offer == "edit"}

    def went_on(self, intent: SendIntent, status: Status, number: int | None) -> HttpResponse:
        """The decision is made: the next email, the row taken away, and the strip to undo it."""
        following = self.inbox.choose(number)
        address = _address(following) + self.filters.query()
        if not wants_fragment(self.request):
            return redirect(address)
        self.inbox.open(following)
        context = {
            **(self._email(following) if following is not None else self._list()),
            **self._frame(),
            "email_is_open": True,
            "focused": True,
            "inbox": self.inbox,
            "marked": [item for item in self.inbox.items if item.is_open],
            "taken": intent,
            "says": self._said(intent, status, following),
        }
        response = render(self.request, "sends/approvals/_went_on.html", context)
        response["HX-Push-Url"] = address
        return response

    def undone(self, intent: SendIntent) -> HttpResponse:
        number = intent.action.number
        address = _address(intent) + self.filters.query()
        if not wants_fragment(self.request):
            return redirect(address)
        self.inbox.open(intent)
        context = {
            **self._list(),
            **self._email(intent),
            "email_is_open": True,
            "focused": True,
            "says": f"#{number} awaits approval again.",
        }
        response = render(self.request, "sends/approvals/_undone.html", context)
        response["HX-Push-Url"] = address
        return _into(response, "#approvals")

    def undo_refused(self, intent: SendIntent, note: Note) -> HttpResponse:
        context: dict[str, Any] = {"undo_note": note, "message_url": message_url(intent)}
        if not wants_fragment(self.request):
            return self.page(intent, status=409, **context)
        response = render(self.request, "sends/approvals/_undo_refused.html", context, status=409)
        return _into(response, "#undos", swap="innerHTML")

    def _said(self, intent: SendIntent, status: Status, following: SendIntent | None) -> str:
        fresh = version_of(self.request, intent.action.number, intent.version)
        words = f"#{intent.action.number} {_in_a_sentence(fresh, status, self.now)}"
        return f"{words} {f'Next: {following.subject}' if following else 'Nothing to approve.'}"

    def _frame(self) -> dict[str, Any]:
        """What every answer about this room needs."""
        return {
            "now": self.now,
            "query": self.filters.query(),
            "undo": undo_of(self.request.membership, self.now, self.filters.query()),
            "may_decide": self.request.membership.may(Role.APPROVER),
        }

    def _list(self) -> dict[str, Any]:
        return {
            **self._frame(),
            "inbox": self.inbox,
            "filters": self.filters,
            "views": [
                (words, self.filters.query(view=view, after=""), view == self.filters.view)
                for view, words in VIEWS.items()
            ],
        }

    def _rows_marked(self, intent: SendIntent) -> list[Any]:
        """The row that is open now, and the one that was."""
        self.inbox.open(intent)
        before = _number_in(page_of(self.request))
        items = self.inbox.items
        was = before if before is not None else (items[0].number if items else None)
        return [item for item in items if item.is_open or item.number == was]

    def _email(self, intent: SendIntent) -> dict[str, Any]:
        email, membership = Email(intent), self.request.membership
        may_decide = membership.may(Role.APPROVER)
        before, after, place = self.inbox.beside(intent)
        tab = email.tab(self.request.GET.get("tab", "")) if may_decide else "history"
        policy = Policy.objects.get(tenant=membership.tenant)
        return {
            "now": self.now,
            "query": self.filters.query(),
            "may_decide": may_decide,
            "intent": intent,
            "email": email,
            "tab": tab,
            "tabs": _tabs(email, tab, self.filters) if may_decide else [],
            "shows_images": self.request.GET.get("images") == "1",
            "images_url": _with(
                _address(intent) + self.filters.query(), {"tab": "html", "images": "1"}
            ),
            "checks": email.checks() if may_decide else [],
            "entries": _history(intent) if tab == "history" else [],
            "standing": standing_approvals(intent),
            "undo_time": in_words(policy.undo_time.total_seconds()),
            "is_halted": self._is_halted(intent),
            "place": place,
            "count": self.inbox.count,
            "before": before,
            "after": after,
            "message_url": message_url(intent),
            **self._decision(intent),
        }

    def _is_halted(self, intent: SendIntent) -> bool:
        if intent.run_id is None:
            return False
        return Switch.objects.off(self.now).filter(pk=intent.run_id).exists()

    def _decision(self, intent: SendIntent) -> dict[str, Any]:
        """What stands at the foot of the email: the bar, or why there is none."""
        if intent.status != Status.AWAITING_APPROVAL:
            return {
                "decide": "sends/approvals/_conflict.html",
                "note": note_of(why_decided(intent)),
            }
        _, after, _ = self.inbox.beside(intent)
        following = str(after.number) if after else ""
        form = Decision(
            initial={"version": intent.version, "digest": intent.digest, "next": following}
        )
        back = reverse("dashboard:send_back", args=[intent.action.number]) + self.filters.query()
        return {
            "decide": "sends/approvals/_decide.html",
            "form": form,
            "reject_url": _with(back, {"outcome": Verdict.REJECT, "next": following}),
            "ask_url": _with(back, {"outcome": Verdict.CHANGES, "next": following}),
            "why_not": self._why_not(intent),
        }

    def _why_not(self, intent: SendIntent) -> str:
        """Why this person's approval would not count, said before it is tried."""
        person = self.request.user
        if any(approval.person_id == person.pk for approval in standing_approvals(intent)):
            return "You approved this; a different person has to as well."
        if intent.author_id == person.pk and intent.approvals_needed < 2:
            return "You wrote this version; somebody else has to approve it."
        return ""


KEPT = ("outcome", "reason_code", "note")


def message_url(intent: SendIntent) -> str:
    return reverse("dashboard:message", args=[intent.action.number])


def _address(intent: SendIntent | None) -> str:
    if intent is None:
        return reverse("dashboard:approvals")
    return reverse("dashboard:approval", args=[intent.action.number])


def _with(address: str, given: dict[str, str]) -> str:
    """The address with more in its query."""
    if not given:
        return address
    return f"{address}{'&' if '?' in address else '?'}{urlencode(given)}"


def _into(response: HttpResponse, target: str, *, swap: str = "outerHTML") -> HttpResponse:
    response["HX-Retarget"] = target
    response["HX-Reswap"] = swap
    return response


def _history(intent: SendIntent) -> list[Entry]:
    story = story_of(intent.tenant, intent.action.number, intent.version)
    return timeline_of(story) if story is not None else []


def _tabs(email: Email, current: str, filters: Filters) -> list[tuple[str, str, str, bool]]:
    """Each tab's key, words and address, and whether it is open."""
    here = _address(email.intent) + filters.query()
    return [
        (key, words, _with(here, {"tab": key}), key == current)
        for key, words in email.tabs().items()
    ]


def _about_the_first(intent: SendIntent, note: Note, form: Decision, *, mine: bool) -> Note:
    """It was decided before: the same, or something else than this person wants now."""
    if mine:
        return Note(note.tone, note.icon_name, "You decided this already", note.text)
    approved = any(
        decision.verdict == Verdict.APPROVE for decision in intent.approvals.filter(undone_at=None)
    )
    if isinstance(form, SendBack):
        return Note(note.tone, note.icon_name, note.title, f"{note.text} Yours was not counted.")
    if approved:
        return Note("good", "ok", "Approved by somebody else already", note.text)
    words = f"{note.text} Your approval was not counted."
    return Note(note.tone, note.icon_name, note.title, words)


def _in_a_sentence(intent: SendIntent, status: Status, now: datetime) -> str:
    match status:
        case Status.AWAITING_APPROVAL:
            return "approved. A different person has to approve it as well."
        case Status.REJECTED:
            return "rejected."
        case Status.CHANGES_REQUESTED:
            return "sent back."
    if intent.next_attempt_at is None or intent.next_attempt_at <= now:
        return "approved."
    left = in_words((intent.next_attempt_at - now).total_seconds())
    return f"approved. Sends in {left}."


def _number_in(address: str) -> int | None:
    """The email that a page of this room has open: 48213 of /approvals/48213/."""
    parts = room_of(address).partition("?")[0].strip("/").split("/")
    return number_in(parts[1]) if len(parts) == 2 and parts[0] == "approvals" else None


def live_rows(request: MemberRequest, ids: Sequence[uuid.UUID], page: str, now: datetime) -> str:
    """Rows decided elsewhere turn grey, and newer emails are offered; nothing moves."""
    filters = Filters.read(QueryDict(page.partition("?")[2]))
    inbox = Inbox(request.membership, filters)
    items = gone_among(request.membership, ids)
    number = _number_in(page)
    for item in items:
        item.is_open = item.number == number
    context = {
        "now": now,
        "query": filters.query(),
        "marked": items,
        "newer": 0 if inbox.is_cut else inbox.newer_than(ids),
        "page": page,
    }
    return render_to_string("sends/approvals/_live.html", context, request)


urlpatterns = [
    path("approvals/", approvals, name="approvals"),
    path("approvals/<int:number>/", approval, name="approval"),
    path("messages/<int:number>/approve/", approve, name="approve"),
    path("messages/<int:number>/send-back/", send_back, name="send_back"),
    path("messages/<int:number>/undo/", undo, name="undo"),
]
