"""Runs: how they go, and for those who may, halting, resuming and ending one."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import get_script_prefix, path, reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from sends.dashboard import charts
from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.conflicts import in_readers_time
from sends.dashboard.forms import Asked, WithReason, ask_why, back_url
from sends.dashboard.requests import go_to, wants_fragment
from sends.dashboard.search import Search
from sends.lifecycle import halts, results
from sends.lifecycle.refusals import Refused, RunEnded
from sends.models import AuditEntry, Role, Run, Switch, database_now
from sends.reports import runs as report
from sends.reports.runs import Attempts, Emails, is_halted
from sends.rules.budgets import (
    ENOUGH,
    LATEST,
    LIMIT_PERCENT,
    Ended,
    FailureRate,
    RetryBudget,
)

FEW = 5  # waiting emails that the page of a run shows
MOST_CELLS = 120
MOST_ADDED = 200
USUAL_ADDED = 20  # to a budget that is used up
TONES = {
    Ended.ACCEPTED: "good",
    Ended.SLOWED: "move",
    Ended.LATER: "wait",
    Ended.UNREACHED: "rest",
    Ended.REFUSED: "bad",
    Ended.UNCLEAR: "unsure",
}


class Halt(WithReason):
    pass


class Resume(WithReason):
    add_retries = forms.IntegerField(
        label="Add retries to the budget",
        min_value=0,
        max_value=MOST_ADDED,
        widget=forms.NumberInput(attrs={"class": "short"}),
    )
    although = forms.BooleanField(error_messages={"required": "Say that you know it still fails"})

    def __init__(self, *args: Any, budget: RetryBudget, rate: FailureRate, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.auto_id = "resume_%s"
        retries: Any = self.fields["add_retries"]
        retries.initial = 0 if budget.percent < 100 else USUAL_ADDED
        retries.help_text = f"{budget.used} of {budget.limit} are used."
        self.fields["reason"].label = "Why is it safe to go on?"
        self.fields["reason"].help_text = "Kept in the audit log."
        if rate.is_over:
            self.fields["although"].label = f"Resume although {rate.percent}% still fail"
        else:
            del self.fields["although"]


class End(WithReason):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.auto_id = "end_%s"
        self.fields["reason"].label = "Why does it end?"
        self.fields["reason"].help_text = "Kept in the audit log, and with each of its emails."


@dataclass(frozen=True)
class State:
    """What `sends/parts/_chip.html` shows of a run."""

    key: str
    icon_name: str
    tone: str
    words: str
    sentence: str


RUNNING = State("running", "play", "good", "Running", "The run may send.")
HALTED = State(
    "halted", "stop", "bad", "Halted", "Nothing of it is sent until an operator resumes it."
)
FINISHED = State("finished", "done", "rest", "Finished", "Nothing of it is left to do.")
ENDED = State(
    "cancelled", "minus", "rest", "Cancelled", "A person ended it; what was unsent is cancelled."
)


def state_of(run: Run, switch: Switch, emails: Emails) -> State:
    if run.ended_at is not None:
        return ENDED
    if is_halted(switch):
        return HALTED
    return RUNNING if emails.open_work or not emails.count else FINISHED


# Reading


@require_safe
@for_role(Role.VIEWER)
def runs(request: MemberRequest) -> HttpResponse:
    before, after = _id_in(request.GET.get("before")), _id_in(request.GET.get("after"))
    page = report.page(request.tenant, before=before, after=after)
    here = reverse("dashboard:runs")
    context = {
        "now": database_now(),
        "rows": [(row, state_of(row.run, row.switch, row.emails)) for row in page.runs],
        "newer": f"{here}?after={page.newer}" if page.newer else "",
        "older": f"{here}?before={page.older}" if page.older else "",
        "is_first": before is None and after is None,
    }
    return render(request, "sends/runs/index.html", context)


def _id_in(word: str | None) -> uuid.UUID | None:
    try:
        return uuid.UUID(word) if word else None
    except ValueError:
        return None


@require_safe
@for_role(Role.VIEWER)
def run(request: MemberRequest, run_id: uuid.UUID) -> HttpResponse:
    return _Page(request, run_id).whole()


# Deciding


@require_http_methods(["GET", "POST"])
@for_role(Role.APPROVER)
def halt(request: MemberRequest, run_id: uuid.UUID) -> HttpResponse:
    """Asks for the reason, in a dialog or on a page of its own, and halts."""
    page = _Page(request, run_id)
    form = Halt(request.POST if request.method == "POST" else None)
    if request.method != "POST":
        return page.halt(form, status=200)
    if not form.is_valid():
        return page.halt(form, status=422)

    def decide() -> results.Result:
        halts.halt_run(page.run, person=request.user, reason=form.cleaned_data["reason"])
        return {}

    try:
        _once(page, form, "halt_run", decide)
    except Refused as refused:
        form.add_error(None, in_readers_time(refused))
        return page.halt(form, status=409)
    waits = page.emails.approved
    messages.success(request, f"{page.run} is halted. {_count(waits)} {_wait(waits)}.")
    return go_to(request, page.back_url)


@require_POST
@for_role(Role.OPERATOR)
def resume(request: MemberRequest, run_id: uuid.UUID) -> HttpResponse:
    page = _Page(request, run_id)
    form = page.resume_form(request.POST)
    if not form.is_valid():
        return page.again("resume", form, status=422)
    given = form.cleaned_data

    def decide() -> results.Result:
        halts.resume_run(
            page.run,
            person=request.user,
            reason=given["reason"],
            add_retries=given["add_retries"],
        )
        return {}

    try:
        _once(page, form, "resume_run", decide)
    except Refused as refused:
        form.add_error(None, in_readers_time(refused))
        return page.again("resume", form, status=409)
    messages.success(request, f"{page.run} goes on. {_count(page.emails.approved)} may be sent.")
    return go_to(request, page.url)


@require_POST
@for_role(Role.OPERATOR)
def cancel(request: MemberRequest, run_id: uuid.UUID) -> HttpResponse:
    """End the run. Not kept under its `action_id`: each email is cancelled on its own, and who
    sends the form again is told what the first one did."""
    page = _Page(request, run_id)
    form = End(request.POST)
    if not form.is_valid():
        return page.again("end", form, status=422)
    try:
        ended = halts.end_run(page.run, person=request.user, reason=form.cleaned_data["reason"])
    except Refused as refused:
        if isinstance(refused, RunEnded) and page.was_ended_by_me:
            return go_to(request, page.url)
        form.add_error(None, in_readers_time(refused))
        return page.again("end", form, status=409)
    stay = f" {_count(ended.waiting)} cannot be cancelled yet." if ended.waiting else ""
    words = f"{page.run} was ended, {_count(ended.cancelled)} cancelled.{stay}"
    messages.success(request, words)
    return go_to(request, page.url)


def _once(page: "_Page", form: WithReason, verb: str, decide: Callable[[], results.Result]) -> None:
    about = form.once_about(page.run.pk)
    results.once(page.request.user, about, verb, database_now(), decide)


def _count(emails: int) -> str:
    return "1 email" if emails == 1 else f"{emails} emails"


def _wait(emails: int) -> str:
    return "waits" if emails == 1 else "wait"


# Answering


class _Page:
    """The page of one run of this tenant, or 404."""

    def __init__(self, request: MemberRequest, run_id: uuid.UUID) -> None:
        self.request = request
        found = Run.objects.filter(pk=run_id, tenant=request.tenant)
        run = found.select_related("agent", "tenant").first()
        if run is None:
            raise Http404
        self.run: Run = run
        self.switch = Switch.objects.get(pk=run.pk)
        self.emails = report.emails_of([run]).get(run.pk, Emails())
        self.now = database_now()
        self.url = reverse("dashboard:run", args=[run.pk])

    @property
    def back_url(self) -> str:
        back = back_url(self.request)
        return self.url if back in (get_script_prefix(), self.request.path) else back

    @property
    def was_ended_by_me(self) -> bool:
        mine = AuditEntry.objects.filter(
            tenant=self.request.tenant,
            target=f"run:{self.run.pk}",
            verb="end_run",
            actor=self.request.user.email,
        )
        return mine.exists()

    def resume_form(self, given: Any = None) -> Resume:
        budget = report.retry_budget(self.run)
        return Resume(given, budget=budget, rate=report.lately(self.request.tenant, self.now))

    def halt(self, form: Halt, *, status: int) -> HttpResponse:
        frame = self._frame()
        asked = Asked(
            f"Halt {self.run.name}",
            "sends/runs/_why.html",
            "Halt this run",
            "Halting…",
            "is-stop",
            "stop",
            self.back_url,
            may=frame["may_halt"],
        )
        return ask_why(self.request, asked, form, status=status, **frame)

    def again(self, which: str, form: WithReason, *, status: int) -> HttpResponse:
        """The form with what is wrong with it; it is kept as it was filled in."""
        if not wants_fragment(self.request):
            return self.whole(**{f"{which}_form": form}, status=status)
        context = {**self._frame(), **self._deciding(), f"{which}_form": form}
        return render(self.request, f"sends/runs/_{which}.html", context, status=status)

    def whole(self, *, status: int = 200, **forms: WithReason) -> HttpResponse:
        budget = report.retry_budget(self.run)
        attempts = report.attempts_of(self.run)
        context = {
            **self._frame(),
            "budget": budget,
            "cells": _cells(budget),
            "causes": _legend(budget.causes),
            "rate": attempts.rate,
            "limit": LIMIT_PERCENT,
            "enough": ENOUGH,
            "latest": LATEST,
            "segments": _segments(self.emails, self._state),
            "waiting": report.waiting(self.run, FEW),
            "search": "?" + urlencode({"q": Search(run=self.run.name).text}),
            "history": _history(report.history(self.run)),
            **self._chart(attempts),
            **self._deciding(),
            **forms,
        }
        return render(self.request, "sends/runs/detail.html", context, status=status)

    @property
    def _state(self) -> State:
        return state_of(self.run, self.switch, self.emails)

    def _frame(self) -> dict[str, Any]:
        may = self.request.membership.may
        return {
            "now": self.now,
            "run": self.run,
            "switch": self.switch,
            "state": self._state,
            "emails": self.emails,
            "may_halt": self._state in (RUNNING, FINISHED) and may(Role.APPROVER),
            "may_resume": self._state is HALTED and may(Role.OPERATOR),
            "may_end": self._state is not ENDED and may(Role.OPERATOR),
        }

    def _deciding(self) -> dict[str, Any]:
        """The forms of those who may use them, and how things go now."""
        if not self.request.membership.may(Role.OPERATOR) or self._state is ENDED:
            return {}
        return {
            "lately": report.lately(self.request.tenant, self.now),
            "resume_form": self.resume_form() if self._state is HALTED else None,
            "end_form": End(),
        }

    def _chart(self, attempts: Attempts) -> dict[str, Any]:
        columns = charts.columns_of(attempts.when_and_how)
        if columns is None:
            return {"columns": None}
        halted_at = self.switch.paused_at if self._state is HALTED else None
        mark = (halted_at, "halted") if halted_at is not None else None
        kinds = [kind for kind in TONES if any(c.counts[kind] for c in columns.columns)]
        tones = {kind: TONES[kind] for kind in kinds}
        return {
            "columns": columns,
            "charts": [charts.draw(columns, tones, width=w, happened=mark) for w in (640, 320)],
            "kinds": tones.items(),
            "table": charts.rows_of(columns, kinds),
            "is_capped": attempts.is_capped,
            "most_attempts": report.MOST_ATTEMPTS,
        }


@dataclass(frozen=True)
class Segment:
    """A part of the bar of emails by state, in percent of its width."""

    tone: str
    words: str
    x: str
    width: str


def _segments(emails: Emails, state: State) -> list[Segment]:
    approved = "held back" if state is HALTED else "approved, not sent yet"
    parts = [
        ("good", emails.accepted, "accepted or delivered"),
        ("move", emails.sending, "being sent"),
        ("rest" if state is HALTED else "move", emails.approved, approved),
        ("wait", emails.undecided, "awaiting a decision"),
        ("unsure", emails.uncertain, "uncertain"),
        ("bad", emails.dead, "dead letter" if emails.dead == 1 else "dead letters"),
        ("rest", emails.ended_unsent, "cancelled or rejected"),
    ]
    segments, x = [], 0.0
    for tone, count, words in parts:
        if count:
            width = 100 * count / emails.count
            segments.append(Segment(tone, f"{count} {words}", f"{x:.2f}", f"{width:.2f}"))
            x += width
    return segments


def _cells(budget: RetryBudget) -> list[str]:
    """A tone for each retry of the budget, "" for those that are left; none where they are many."""
    if max(budget.limit, budget.used) > MOST_CELLS:
        return []
    tones = [TONES[how] for how in TONES for _ in range(budget.causes[how])][: budget.used]
    tones += ["rest"] * (budget.used - len(tones))  # an older period, or a cause nobody knows
    return tones + [""] * (budget.limit - budget.used)


def _legend(causes: Any) -> list[tuple[str, str]]:
    return [(TONES[how], f"{causes[how]} {how.value}") for how in TONES if causes[how]]


VERBS = {"turn_off": "Halted", "turn_on": "Resumed", "end_run": "Ended"}


def _history(entries: list[AuditEntry]) -> list[tuple[AuditEntry, str]]:
    said = []
    for entry in entries:
        who = "the system" if entry.actor == "system" else entry.actor
        reason = f": {entry.reason}" if entry.reason else ""
        said.append((entry, f"{VERBS.get(entry.verb, entry.verb)} by {who}{reason}"))
    return said


urlpatterns = [
    path("runs/", runs, name="runs"),
    path("runs/<uuid:run_id>/", run, name="run"),
    path("runs/<uuid:run_id>/halt/", halt, name="halt_run"),
    path("runs/<uuid:run_id>/resume/", resume, name="resume_run"),
    path("runs/<uuid:run_id>/cancel/", cancel, name="end_run"),
]
