"""The brake: pause and resume all sending, one account or one sender, with a reason."""

import uuid
from collections.abc import Callable
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.http import require_http_methods

from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.forms import WithReason
from sends.dashboard.requests import htmx_of, ours, wants_fragment
from sends.lifecycle import halts, results
from sends.lifecycle.refusals import Refused
from sends.models import (
    Account,
    Cause,
    Role,
    Sender,
    SendIntent,
    Switch,
    SwitchKind,
    database_now,
)
from sends.rules.statuses import Status

Turn = Callable[..., Switch]


@require_http_methods(["GET", "POST"])
@for_role(Role.APPROVER)
def switch_off(request: MemberRequest, scope: uuid.UUID) -> HttpResponse:
    return _turn(request, _switch(request, scope), halts.turn_off)


@require_http_methods(["GET", "POST"])
@for_role(Role.OPERATOR)
def switch_on(request: MemberRequest, scope: uuid.UUID) -> HttpResponse:
    return _turn(request, _switch(request, scope), halts.turn_on)


def _switch(request: MemberRequest, scope: uuid.UUID) -> Switch:
    """A switch of this tenant; runs have their own page for it."""
    switches = Switch.objects.filter(tenant=request.tenant).exclude(kind=SwitchKind.RUN)
    switch = switches.filter(pk=scope).first()
    if switch is None:
        raise Http404
    return switch


def _turn(request: MemberRequest, switch: Switch, turn: Turn) -> HttpResponse:
    context = {
        "switch": switch,
        "through": _through(switch),
        "turns_off": turn is halts.turn_off,
        "is_so_already": bool(switch.causes & Cause.PAUSED) == (turn is halts.turn_off),
        "on_the_wire": _on_the_wire(switch),
        "back_url": _back_url(request),
    }
    form = WithReason(request.POST or None)
    if request.method != "POST":
        return _form(request, context, form, status=200)
    if not form.is_valid():
        return _form(request, context, form, status=422)
    try:
        results.once(
            request.user,
            form.cleaned_data["action_id"],
            turn.__name__,
            database_now(),
            lambda: _result(turn(switch.pk, by=request.user, reason=form.cleaned_data["reason"])),
        )
    except Refused as refused:
        form.add_error(None, refused.words)
        return _form(request, context, form, status=409)
    return _done(request, context)


def _result(switch: Switch) -> results.Result:
    return {"causes": switch.causes}


def _back_url(request: MemberRequest) -> str:
    """Where the person came from. Without JavaScript the form itself is a page, so it keeps it."""
    if "back" in request.POST:
        return ours(request, request.POST["back"])
    return ours(request, htmx_of(request).current_url or request.headers.get("Referer", "/"))


def _form(
    request: MemberRequest, context: dict[str, Any], form: WithReason, *, status: int
) -> HttpResponse:
    name = "_form" if wants_fragment(request) else "index"
    return render(request, f"sends/switches/{name}.html", {**context, "form": form}, status=status)


def _done(request: MemberRequest, context: dict[str, Any]) -> HttpResponse:
    if wants_fragment(request):
        return render(request, "sends/switches/_done.html", context)
    return redirect(context["back_url"])


def _through(switch: Switch) -> str:
    """The account or sender through which is sent; "" where it is everything."""
    if switch.kind == SwitchKind.ACCOUNT:
        return Account.objects.get(pk=switch.pk).slug
    if switch.kind == SwitchKind.SENDER:
        return Sender.objects.get(pk=switch.pk).address
    return ""


def _on_the_wire(switch: Switch) -> int:
    column = {SwitchKind.ACCOUNT: "account", SwitchKind.SENDER: "sender"}.get(
        SwitchKind(switch.kind), "tenant"
    )
    sending = SendIntent.objects.filter(status=Status.IN_FLIGHT, **{f"{column}_id": switch.pk})
    return sending.count()


urlpatterns = [
    path("switches/<uuid:scope>/off/", switch_off, name="switch_off"),
    path("switches/<uuid:scope>/on/", switch_on, name="switch_on"),
]
