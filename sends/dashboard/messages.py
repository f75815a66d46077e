"""Every email there is, found by whatever is known of it."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlencode

from django import forms
from django.db.models import Prefetch, QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.views.decorators.http import require_safe

from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.requests import storable, wants_fragment
from sends.dashboard.search import STATES, USUAL_SPAN, Search, find, search_in
from sends.dashboard.states import Chip, chips_of, with_causes
from sends.lifecycle.obstacles import author_of
from sends.models import Delivery, Role, SendIntent, database_now

PAGE = 50
MOST_COUNTED = 1000


class Filters(forms.Form):
    """The filters of the search as fields: they write the text that could have been typed."""

    state = forms.ChoiceField(required=False, choices=[("", "Any"), *STATES.items()])
    agent = forms.CharField(required=False)
    run = forms.CharField(required=False)
    template = forms.CharField(required=False)
    since = forms.DateField(
        required=False, label="From", widget=forms.DateInput(attrs={"type": "date"})
    )


@dataclass(frozen=True)
class Row:
    """One email in the list."""

    intent: SendIntent
    chips: list[Chip]

    @property
    def number(self) -> int:
        return self.intent.action.number

    @property
    def more(self) -> int:
        return self.intent.recipient_count - 1

    @property
    def author(self) -> str:
        return author_of(self.intent).removeprefix("agent:")

    @property
    def url(self) -> str:
        if self.intent.version == self.intent.action.latest_version:
            return reverse("dashboard:message", args=[self.number])
        return reverse("dashboard:message_version", args=[self.number, self.intent.version])


@require_safe
@for_role(Role.VIEWER)
def index(request: MemberRequest) -> HttpResponse:
    now = database_now()
    search = _search(request)
    rows, newer, older = _page(request, find(search, request.tenant, now))
    context = {
        "now": now,
        "search": search,
        "form": Filters(initial=vars(search)),
        "has_filters": any((search.state, search.agent, search.run, search.template)),
        "rows": [row_of(intent) for intent in rows],
        "newer": newer and f"?{urlencode({'q': search.text, 'after': newer})}",
        "older": older and f"?{urlencode({'q': search.text, 'before': older})}",
        "found": _count(find(search, request.tenant, now), search, rows, newer or older),
        "usual_days": USUAL_SPAN.days if search.covers_usual_span else 0,
    }
    if not wants_fragment(request):
        return render(request, "sends/messages/index.html", context)
    response = render(request, "sends/messages/_answer.html", context)
    query = urlencode({"q": search.text}) if search.text else ""
    response["HX-Push-Url"] = reverse("dashboard:messages") + (f"?{query}" if query else "")
    return response


def row_of(intent: SendIntent) -> Row:
    """A row of an intent that came through `_with_rows`."""
    return Row(intent, chips_of(intent, list(intent.deliveries.all())))


def _search(request: MemberRequest) -> Search:
    """What was typed, with the fields of the filter form in place of what they stand for."""
    search = search_in(storable(request.GET.get("q", "")[:1000]))
    if "filter" not in request.GET:
        return search
    form = Filters(request.GET)
    form.full_clean()
    wrong = tuple(str(error) for errors in form.errors.values() for error in errors)
    return replace(search, **form.cleaned_data, wrong=search.wrong + wrong)


def _page(request: MemberRequest, found: QuerySet[SendIntent]) -> tuple[list[SendIntent], str, str]:
    """A page of rows, the newest first, and the keys from which the pages beside it begin."""
    before, after = _key(request, "before"), _key(request, "after")
    found = _with_rows(found)
    if after is not None:
        rows = list(found.filter(pk__gt=after).order_by("pk")[: PAGE + 1])
        more, rows = len(rows) > PAGE, rows[:PAGE][::-1]
        return rows, str(rows[0].pk) if more else "", str(rows[-1].pk) if rows else ""
    if before is not None:
        found = found.filter(pk__lt=before)
    rows = list(found.order_by("-pk")[: PAGE + 1])
    more, rows = len(rows) > PAGE, rows[:PAGE]
    newer = str(rows[0].pk) if before is not None and rows else ""
    return rows, newer, str(rows[-1].pk) if more else ""


def _key(request: MemberRequest, name: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(request.GET.get(name, ""))
    except ValueError:
        return None


def _with_rows(found: QuerySet[SendIntent]) -> QuerySet[SendIntent]:
    deliveries = Prefetch("deliveries", Delivery.objects.only("intent_id", "state"))
    rows = with_causes(found).select_related("action", "agent", "author", "run")
    return rows.prefetch_related(deliveries)


def _count(found: QuerySet[SendIntent], search: Search, rows: list[SendIntent], more: str) -> str:
    """How many were found, as far as it is quickly known: "7", "1,000+", or ""."""
    if not more:
        return str(len(rows))
    if not search.may_be_counted:
        return ""
    count = found.order_by()[: MOST_COUNTED + 1].count()
    return f"{MOST_COUNTED:,}+" if count > MOST_COUNTED else f"{count:,}"


def live_rows(request: MemberRequest, ids: Sequence[uuid.UUID], page: str, now: datetime) -> str:
    """The states of the rows that a list shows, each for its place."""
    found = _with_rows(SendIntent.objects.filter(tenant=request.tenant, pk__in=ids))
    rows = [row_of(intent) for intent in found.order_by("-pk")] if ids else []
    context = {"rows": rows, "now": now}
    return render_to_string("sends/messages/_states.html", context, request)


urlpatterns = [path("messages/", index, name="messages")]
