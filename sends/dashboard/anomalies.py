"""Anomalies: what contradicts a promise, shown from both sides until an admin has looked."""

import uuid
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.http import require_POST, require_safe

from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.conflicts import in_readers_time
from sends.dashboard.forms import WithReason
from sends.dashboard.requests import wants_fragment
from sends.lifecycle import results
from sends.lifecycle.anomalies import close_anomaly
from sends.lifecycle.refusals import Refused
from sends.models import Anomaly, Role, database_now
from sends.reports import anomalies as report


class Close(WithReason):
    """One of several on the page: the ids of its fields name the anomaly."""

    def __init__(self, *args: Any, anomaly_id: uuid.UUID, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.auto_id = f"{anomaly_id}_%s"
        self.fields["reason"].label = "What did you find, and why may it go on?"
        self.fields["reason"].help_text = "Kept in the audit log."


@require_safe
@for_role(Role.VIEWER)
def anomalies(request: MemberRequest) -> HttpResponse:
    return _page(request)


@require_POST
@for_role(Role.ADMIN)
def close(request: MemberRequest, anomaly_id: uuid.UUID) -> HttpResponse:
    anomaly = Anomaly.objects.filter(pk=anomaly_id, tenant=request.tenant)
    found = anomaly.select_related("intent__action").first()
    if found is None:
        raise Http404
    form = Close(request.POST, anomaly_id=anomaly_id)
    if not form.is_valid():
        return _page(request, {anomaly_id: form}, status=422)

    def decide() -> results.Result:
        close_anomaly(anomaly_id, person=request.user, reason=form.cleaned_data["reason"])
        return {}

    try:
        results.once(
            request.user, form.once_about(anomaly_id), "close_anomaly", database_now(), decide
        )
    except Refused as refused:
        messages.warning(request, in_readers_time(refused))
        return _page(request, status=409)
    messages.success(request, f"The anomaly of #{found.intent.action.number} is closed.")
    return _page(request) if wants_fragment(request) else redirect("dashboard:anomalies")


def _page(
    request: MemberRequest, forms: dict[uuid.UUID, Close] | None = None, *, status: int = 200
) -> HttpResponse:
    """All of them; `forms` are those that were sent and have something wrong."""
    is_admin = request.membership.may(Role.ADMIN)
    opened = report.told(request.tenant, are_open=True)
    sent = forms or {}
    context = {
        "now": database_now(),
        "opened": [(told, _form(told.anomaly, sent) if is_admin else None) for told in opened],
        "closed": report.told(request.tenant, are_open=False),
        "most": report.MOST,
        "is_wrong": bool(sent),
    }
    name = "_answer" if wants_fragment(request) else "index"
    return render(request, f"sends/anomalies/{name}.html", context, status=status)


def _form(anomaly: Anomaly, sent: dict[uuid.UUID, Close]) -> Close:
    return sent.get(anomaly.pk) or Close(anomaly_id=anomaly.pk)


urlpatterns = [
    path("anomalies/", anomalies, name="anomalies"),
    path("anomalies/<uuid:anomaly_id>/close/", close, name="close_anomaly"),
]
