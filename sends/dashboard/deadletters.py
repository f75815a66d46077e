"""Triage of dead letters, group by group: requeue them, close them, or open them again."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.views.decorators.http import require_POST, require_safe

from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.conflicts import in_readers_time
from sends.dashboard.forms import Deciding, WithReason
from sends.dashboard.requests import page_of, wants_fragment
from sends.lifecycle import results
from sends.lifecycle.obstacles import moment
from sends.lifecycle.refusals import AlreadyDecided, Refused
from sends.lifecycle.requeue import close as close_one
from sends.lifecycle.requeue import may_requeue_each
from sends.lifecycle.requeue import reopen as reopen_one
from sends.lifecycle.requeue import requeue as requeue_one
from sends.models import Role, SendIntent, Tenant, database_now
from sends.reports import deadletters as report
from sends.reports.deadletters import Group, Grouped, Letter
from sends.rules.signatures import REPEATABLE, SENTENCES, DeadClass
from sends.rules.statuses import Status

# How many emails of a group are shown, and decided about, at once.
PAGE = 50
ICONS = {
    DeadClass.BOUNCED: "bounce",
    DeadClass.CONTENT: "refused",
    DeadClass.POLICY: "no",
    DeadClass.SPENT: "retry",
    DeadClass.FOUND: "user",
    DeadClass.OURS: "alert",
}
SHOWN = {"": "Open", "repeat": "May be repeated", "recipient": "Recipient", "closed": "Closed"}
KINDS = {"repeat": REPEATABLE, "recipient": frozenset({DeadClass.BOUNCED})}


class Picked(Deciding):
    """Emails of this tenant, by their ids; some may have changed since they were shown."""

    emails = forms.ModelMultipleChoiceField(
        SendIntent.objects.none(), error_messages={"required": "Select at least one email"}
    )

    def __init__(self, *args: Any, tenant: Tenant, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        intents = SendIntent.objects.filter(tenant=tenant).select_related("action", "run")
        emails: Any = self.fields["emails"]
        emails.queryset = intents.order_by("approved_at", "pk")

    def clean_emails(self) -> list[SendIntent]:
        intents = list(self.cleaned_data["emails"])
        if len(intents) > PAGE:
            raise forms.ValidationError(f"Select at most {PAGE} emails at once.")
        return intents


class Close(Picked, WithReason):
    # The browser would demand a reason for requeuing too: both buttons send the same form.
    use_required_attribute = False

    def __init__(self, *args: Any, tenant: Tenant, **kwargs: Any) -> None:
        super().__init__(*args, tenant=tenant, **kwargs)
        # It stands below the table, whose boxes belong to the same form.
        self.fields["reason"].widget.attrs["form"] = "picks"


# Reading


@require_safe
@for_role(Role.VIEWER)
def dead_letters(request: MemberRequest) -> HttpResponse:
    """The groups, and the first of them beside them."""
    room = _Room(request)
    return room.page(room.first, is_open=False)


@require_safe
@for_role(Role.VIEWER)
def dead_letter_group(request: MemberRequest, group: str) -> HttpResponse:
    """The groups with one open; for HTMX that one alone."""
    room = _Room(request)
    found = room.grouped.find(group)
    return room.opened(found, group) if wants_fragment(request) else room.page(found)


# Deciding


@require_POST
@for_role(Role.OPERATOR)
def requeue(request: MemberRequest, group: str) -> HttpResponse:
    form = Picked(request.POST, tenant=request.tenant)
    if not form.is_valid():
        return _Room(request).wrong(group, form)
    return _decided(request, group, form, "requeue", "requeued", requeue_one)


@require_POST
@for_role(Role.OPERATOR)
def close(request: MemberRequest, group: str) -> HttpResponse:
    form = Close(request.POST, tenant=request.tenant)
    if not form.is_valid():
        return _Room(request).wrong(group, form)
    step = partial(close_one, reason=form.cleaned_data["reason"])
    return _decided(request, group, form, "close", "closed", step)


@require_POST
@for_role(Role.OPERATOR)
def reopen(request: MemberRequest, group: str) -> HttpResponse:
    form = Picked(request.POST, tenant=request.tenant)
    if not form.is_valid():
        return _Room(request).wrong(group, form)
    return _decided(request, group, form, "reopen", "opened again", reopen_one)


@dataclass
class _Tally:
    """What became of each of the emails that somebody selected."""

    did: str
    done: list[SendIntent] = field(default_factory=list)
    left: dict[str, list[SendIntent]] = field(default_factory=dict)  # by the reason

    @property
    def words(self) -> str:
        """ "3 emails requeued: #1, #2, #3." """
        if not self.done:
            return f"No email was {self.did}."
        some = "1 email was" if len(self.done) == 1 else f"{len(self.done)} emails were"
        return f"{some} {self.did}: {_numbers(self.done)}."


def _decided(
    request: MemberRequest,
    group: str,
    form: Picked,
    verb: str,
    did: str,
    step: Callable[..., SendIntent],
) -> HttpResponse:
    """Take the step for each email by itself, in the order in which they were approved.

    Each in a transaction of its own, so that no one waits for another's locks; sent twice, the
    form decides each of them once.
    """
    tally = _Tally(did)
    refused: list[tuple[SendIntent, Refused]] = []
    for intent in form.cleaned_data["emails"]:
        try:
            results.once(
                request.user,
                form.once_about(intent.pk),
                verb,
                database_now(),
                partial(_take, step, intent.pk, request.user),
            )
        except Refused as refusal:
            refused.append((intent, refusal))
        else:
            tally.done.append(intent)
    for intent, words in _why(refused):
        tally.left.setdefault(words, []).append(intent)
    return _Room(request).decided(group, tally)


def _take(step: Callable[..., SendIntent], intent_id: uuid.UUID, person: Any) -> results.Result:
    return {"status": step(intent_id, person=person).status}


def _why(refused: Sequence[tuple[SendIntent, Refused]]) -> list[tuple[SendIntent, str]]:
    """Each refusal in words; where somebody else requeued it meanwhile, who and when."""
    by = report.requeued_by([i for i, refusal in refused if isinstance(refusal, AlreadyDecided)])
    said = []
    for intent, refusal in refused:
        entry = by.get(intent.pk)
        if entry is not None and intent.status != Status.DEAD_LETTER:
            refusal = AlreadyDecided(
                f"{entry.actor} requeued it at {moment(entry.at)}.", at=entry.at
            )
        said.append((intent, in_readers_time(refusal)))
    return said


def _numbers(intents: Sequence[SendIntent]) -> str:
    return ", ".join(f"#{intent.action.number}" for intent in intents)


# Answering


@dataclass(frozen=True)
class Way:
    """What a person can do about an email that cannot be requeued."""

    words: str
    url: str


# By what the refusal offers: its words, and the name of the address where it is done.
WAYS = {
    "edit": ("Correct it", "edit"),
    "follow_up": ("Send a follow-up", "follow_up"),
    "resend": ("Send it as a new version", "message"),
}


@dataclass(frozen=True)
class Line:
    """One group in the list."""

    group: Group
    icon_name: str
    is_open: bool

    @property
    def agents(self) -> str:
        """ "invoice-reminder and 2 more"."""
        first, *more = self.group.agents or ["written by people"]
        return f"{first} and {len(more)} more" if more else first


@dataclass(frozen=True)
class Row:
    """One email of a group. `stays_out` says why it cannot be requeued, "" where it can be."""

    letter: Letter
    stays_out: str
    way: Way | None
    is_picked: bool


class _Room:
    """The room as one person sees it in this request, and each of its answers."""

    def __init__(self, request: MemberRequest) -> None:
        self.request = request
        self.show = request.GET.get("show", "")
        if self.show not in SHOWN:
            self.show = ""
        self.now = database_now()
        self.grouped = self._read()

    def _read(self) -> Grouped:
        return report.grouped(self.request.tenant, are_closed=self.show == "closed")

    @property
    def query(self) -> str:
        return f"?show={self.show}" if self.show else ""

    @property
    def groups(self) -> list[Group]:
        return self.grouped.of(KINDS.get(self.show, frozenset(DeadClass)))

    @property
    def first(self) -> Group | None:
        return next(iter(self.groups), None)

    def page(
        self,
        group: Group | None,
        *,
        is_open: bool = True,
        form: Picked | None = None,
        status: int = 200,
    ) -> HttpResponse:
        context = {**self._list(group), **self._group(group, form), "group_is_open": is_open}
        return render(self.request, "sends/deadletters/index.html", context, status=status)

    def opened(self, group: Group | None, signature_id: str) -> HttpResponse:
        """The group for HTMX, and the rows that it and the one before have in the list."""
        was = page_of(self.request).partition("?")[0].strip("/").rpartition("/")[2]
        if self.first is not None and was == "dead-letters":
            was = self.first.signature.id
        marked = [
            self._line(found, group)
            for found in self.groups
            if found.signature.id in (was, signature_id)
        ]
        return self._fragment("_opened", group, marked=marked)

    def wrong(self, signature_id: str, form: Picked) -> HttpResponse:
        """Nothing was done: what was selected and typed is there again."""
        group = self.grouped.find(signature_id)
        if not wants_fragment(self.request):
            return self.page(group, form=form, status=422)
        return self._fragment("_group", group, form, status=422)

    def decided(self, signature_id: str, tally: _Tally) -> HttpResponse:
        self._tell(tally)
        if not wants_fragment(self.request):
            return redirect(
                reverse("dashboard:dead_letter_group", args=[signature_id]) + self.query
            )
        group = self.grouped.find(signature_id)
        return self._fragment(
            "_decided", group, status=200 if tally.done else 409, says=tally.words
        )

    def _tell(self, tally: _Tally) -> None:
        level = messages.SUCCESS if tally.done else messages.WARNING
        messages.add_message(self.request, level, tally.words)
        for words, intents in tally.left.items():
            messages.warning(self.request, f"Left out: {_numbers(intents)}. {words}")

    def _list(self, group: Group | None) -> dict[str, Any]:
        return {
            "now": self.now,
            "query": self.query,
            "show": self.show,
            "shown": [(words, key, self._count(key), key == self.show) for key, words in _SHOWN],
            "lines": [self._line(found, group) for found in self.groups],
            "is_capped": self.grouped.is_capped,
            "most": report.MOST,
            "last_closed_at": None if self.groups else report.last_closed_at(self.request.tenant),
        }

    def _line(self, group: Group, is_open: Group | None) -> Line:
        return Line(group, ICONS[group.signature.kind], group is is_open)

    def _count(self, key: str) -> int | None:
        """Of how many emails a filter lets us know; None where we have not looked."""
        if (key == "closed") != (self.show == "closed"):
            return None
        return sum(len(g.letters) for g in self.grouped.of(KINDS.get(key, frozenset(DeadClass))))

    def _fragment(
        self,
        name: str,
        group: Group | None,
        form: Picked | None = None,
        *,
        status: int = 200,
        **more: Any,
    ) -> HttpResponse:
        context = {**self._list(group), **self._group(group, form), "group_is_open": True, **more}
        return render(self.request, f"sends/deadletters/{name}.html", context, status=status)

    def _group(self, group: Group | None, form: Picked | None) -> dict[str, Any]:
        """One group in full; `form` is one that was sent and has something wrong."""
        may_decide = self.request.membership.may(Role.OPERATOR)
        if group is None:
            return {"group": None, "next_group": self.first, "may_decide": may_decide}
        rows = self._rows(group, form)
        return {
            "group": group,
            "kind_icon": ICONS[group.signature.kind],
            "sentence": SENTENCES[group.signature.kind],
            "rows": rows,
            "can_be": sum(not row.stays_out for row in rows),
            "stay_out": sum(bool(row.stays_out) for row in rows),
            "left_out": _reasons(rows),
            "picked": sum(row.is_picked for row in rows),
            "accepted": self._accepted_since(group),
            "may_decide": may_decide,
            "form": form or Close(tenant=self.request.tenant),
        }

    def _rows(self, group: Group, form: Picked | None) -> list[Row]:
        letters = group.letters[:PAGE]
        refusals = may_requeue_each([letter.intent for letter in letters], self.now)
        # Where nothing can be requeued, all can still be closed.
        is_for_all = self.show == "closed" or all(refusals.values())
        picked = {pk for pk, refusal in refusals.items() if is_for_all or refusal is None}
        if form is not None:
            sent = cast(QueryDict, form.data).getlist("emails")
            picked = {pk for pk in refusals if str(pk) in sent}
        return [
            Row(
                letter,
                stays_out=in_readers_time(refusal) if refusal is not None else "",
                way=self._way(letter, refusal),
                is_picked=letter.intent.pk in picked,
            )
            for letter in letters
            for refusal in [refusals[letter.intent.pk]]
        ]

    def _way(self, letter: Letter, refusal: Refused | None) -> Way | None:
        if refusal is None or not self.request.membership.may(Role.APPROVER):
            return None
        if refusal.offer not in WAYS:
            return None
        words, address = WAYS[refusal.offer]
        return Way(words, reverse(f"dashboard:{address}", args=[letter.intent.action.number]))

    def _accepted_since(self, group: Group) -> str:
        """How many emails the provider took since, where that tells whether to try again."""
        if self.show == "closed" or not group.may_be_repeated:
            return ""
        count = report.accepted_since(group, self.now)
        if not count:
            return ""
        return f"{count}+" if count == report.MOST_ACCEPTED else str(count)


_SHOWN = tuple(SHOWN.items())


def _reasons(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Why emails stay out, each reason once, with the numbers of those it concerns."""
    found: dict[str, list[SendIntent]] = {}
    for row in rows:
        if row.stays_out:
            found.setdefault(row.stays_out, []).append(row.letter.intent)
    return [(_numbers(intents), words) for words, intents in found.items()]


urlpatterns = [
    path("dead-letters/", dead_letters, name="dead_letters"),
    path("dead-letters/<slug:group>/", dead_letter_group, name="dead_letter_group"),
    path("dead-letters/<slug:group>/requeue/", requeue, name="requeue"),
    path("dead-letters/<slug:group>/close/", close, name="close_dead_letters"),
    path("dead-letters/<slug:group>/reopen/", reopen, name="reopen_dead_letters"),
]
