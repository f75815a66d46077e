"""The audit log: who decided what, when and why, and the same as a file."""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.template.defaultfilters import pluralize
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.conflicts import Note
from sends.dashboard.requests import number_in
from sends.lifecycle import chain
from sends.models import AuditEntry, Role, Tenant, database_now

PAGE = 50
MESSAGE = re.compile(r"message:(\d+)/v(\d+)")
RUN = re.compile(r"run:([0-9a-f-]{36})")
# Verbs that say less by themselves than what the pages say for them.
WORDS = {"turn_off": "Stop sending", "turn_on": "Let send again"}
# What a spreadsheet would take for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
DAY = forms.DateInput(attrs={"type": "date"})


class Filters(forms.Form):
    actor = forms.CharField(
        required=False, label="Who", help_text="An address, agent:NAME, or system", max_length=254
    )
    verb = forms.ChoiceField(required=False, label="Did what")
    since = forms.DateField(required=False, label="From", widget=DAY)
    until = forms.DateField(required=False, label="To", widget=DAY)

    def __init__(self, *args: Any, tenant: Tenant, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["verb"].choices = [  # type: ignore[attr-defined]
            ("", "Anything"),
            *((verb, words_of(verb)) for verb in _verbs(tenant)),
        ]

    def entries(self, tenant: Tenant) -> QuerySet[AuditEntry]:
        """Those asked for; where it is unclear which, none."""
        found = AuditEntry.objects.filter(tenant=tenant)
        if not self.is_valid():
            return found.none()
        given = self.cleaned_data
        for name in ("actor", "verb"):
            if given[name]:
                found = found.filter(**{name: given[name]})
        if given["since"]:
            found = found.filter(at__gte=_begin(given["since"]))
        if given["until"]:
            found = found.filter(at__lt=_begin(given["until"] + timedelta(days=1)))
        return found

    @property
    def query(self) -> dict[str, str]:
        """What narrows the list, as the address has it."""
        return {name: self.data[name] for name in self.fields if self.data.get(name)}


@dataclass(frozen=True)
class Row:
    """One entry in the list."""

    entry: AuditEntry

    @property
    def did(self) -> str:
        return words_of(self.entry.verb)

    @property
    def about(self) -> str:
        if found := MESSAGE.fullmatch(self.entry.target):
            return f"#{found[1]}, version {found[2]}"
        return "run" if RUN.fullmatch(self.entry.target) else self.entry.target

    @property
    def url(self) -> str:
        """Where the thing it is about stands, if that is a page."""
        if found := MESSAGE.fullmatch(self.entry.target):
            return reverse("dashboard:message_version", args=[int(found[1]), int(found[2])])
        if found := RUN.fullmatch(self.entry.target):
            return reverse("dashboard:run", args=[found[1]])
        return ""

    @cached_property
    def facts(self) -> list[tuple[str, str]]:
        try:
            known = json.loads(bytes(self.entry.facts))
        except ValueError:
            return [("facts", "cannot be read")]
        return [(words_of(name), _said(value)) for name, value in known.items()]


@require_safe
@for_role(Role.VIEWER)
def audit(request: MemberRequest) -> HttpResponse:
    form = Filters(request.GET, tenant=request.tenant)
    entries, newer, older = _page(request, form.entries(request.tenant))
    here, query = reverse("dashboard:audit"), form.query
    context = {
        "now": database_now(),
        "form": form,
        "rows": [Row(entry) for entry in entries],
        "newer": newer and f"{here}?{urlencode({**query, 'after': newer})}",
        "older": older and f"{here}?{urlencode({**query, 'before': older})}",
        "narrows": bool(query),
        "csv_url": f"{reverse('dashboard:audit_csv')}?{urlencode(query)}",
        "may_check": request.membership.may(Role.ADMIN),
        "note": _checked(request) if "check" in request.GET else None,
    }
    return render(request, "sends/audit/index.html", context)


@require_safe
@for_role(Role.VIEWER)
def as_csv(request: MemberRequest) -> StreamingHttpResponse:
    """The entries that the list shows, for a spreadsheet; moments in UTC."""
    entries = Filters(request.GET, tenant=request.tenant).entries(request.tenant)
    rows = entries.order_by("sequence").iterator(chunk_size=chain.BATCH)
    return _file(request, _csv(rows), "text/csv; charset=utf-8", "csv")


@require_safe
@for_role(Role.VIEWER)
def as_jsonl(request: MemberRequest) -> StreamingHttpResponse:
    """The whole log with its hashes, and its signed end: `manage.py verify_audit` compares."""
    return _file(request, chain.export(request.tenant), "application/jsonl", "jsonl")


def words_of(name: str) -> str:
    return WORDS.get(name) or name.replace("_", " ").capitalize()


def _page(request: MemberRequest, found: QuerySet[AuditEntry]) -> tuple[list[AuditEntry], str, str]:
    """A page of entries, the newest first, and the numbers from which the pages beside it begin."""
    before, after = (
        number_in(request.GET.get("before", "")),
        number_in(request.GET.get("after", "")),
    )
    if after is not None:
        rows = list(found.filter(sequence__gt=after).order_by("sequence")[: PAGE + 1])
        more, rows = len(rows) > PAGE, rows[:PAGE][::-1]
        newer = str(rows[0].sequence) if more else ""
        return rows, newer, str(rows[-1].sequence) if rows else ""
    if before is not None:
        found = found.filter(sequence__lt=before)
    rows = list(found.order_by("-sequence")[: PAGE + 1])
    more, rows = len(rows) > PAGE, rows[:PAGE]
    newer = str(rows[0].sequence) if before is not None and rows else ""
    return rows, newer, str(rows[-1].sequence) if more else ""


def _checked(request: MemberRequest) -> Note | None:
    """What following the chain finds. It reads every entry, so it is for admins."""
    if not request.membership.may(Role.ADMIN):
        return None
    found = chain.check(request.tenant)
    if found.broken:
        words = f"{found.broken[:1].upper()}{found.broken[1:]}. Nothing after it can be relied on."
        return Note("bad", "alert", "The log is not the one that was written", words)
    entries = f"{found.entries:,} entr{pluralize(found.entries, 'y,ies')}"
    words = f"{entries}, each following from the one before it."
    if found.checkpoint is not None:
        words += f" Those up to {found.checkpoint.sequence} were exported and cut off."
    return Note("good", "ok", "Checked just now: unbroken", words)


def _begin(day: Any) -> datetime:
    return datetime.combine(day, time.min, timezone.get_current_timezone())


def _verbs(tenant: Tenant) -> Iterator[str]:
    """Every verb there is, each by one look into the index: there are few, of many entries."""
    verbs = AuditEntry.objects.filter(tenant=tenant).order_by("verb").values_list("verb", flat=True)
    verb = verbs.first()
    while verb is not None:
        yield verb
        verb = verbs.filter(verb__gt=verb).first()


def _said(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(_said(one) for one in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# Files


class _Line:
    """Gives back each row that the csv module writes."""

    def write(self, line: str) -> str:
        return line


COLUMNS = ("sequence", "at", "actor", "verb", "target", "reason", "facts", "hash")


def _csv(entries: Iterable[AuditEntry]) -> Iterator[str]:
    writer = csv.writer(_Line())
    yield writer.writerow(COLUMNS)
    for entry in entries:
        known = chain.as_json(entry)
        yield writer.writerow([_harmless(known[name]) for name in COLUMNS])


def _harmless(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if text.startswith(FORMULA) else text


def _file(
    request: MemberRequest, lines: Iterator[str], kind: str, ending: str
) -> StreamingHttpResponse:
    response = StreamingHttpResponse(lines, content_type=kind)
    name = f"audit-{request.tenant.slug}-{timezone.now():%Y-%m-%d}.{ending}"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


urlpatterns = [
    path("audit/", audit, name="audit"),
    path("audit/log.csv", as_csv, name="audit_csv"),
    path("audit/log.jsonl", as_jsonl, name="audit_jsonl"),
]
