"""The brake: pause and resume all sending, one account or one sender, with a reason."""

import uuid
from collections.abc import Callable

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.http import require_http_methods

from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.forms import Asked, WithReason, ask_why, back_url
from sends.dashboard.requests import wants_fragment
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
    asked = _asked(request, switch, turn)
    context = {
        "switch": switch,
        "turns_off": turn is halts.turn_off,
        "on_the_wire": _on_the_wire(switch),
    }
    form = WithReason(request.POST or None)
    if request.method != "POST":
        return ask_why(request, asked, form, status=200, **context)
    if not form.is_valid():
        return ask_why(request, asked, form, status=422, **context)
    try:
        results.once(
            request.user,
            form.once_about(switch.pk),
            turn.__name__,
            database_now(),
            lambda: _result(turn(switch.pk, by=request.user, reason=form.cleaned_data["reason"])),
        )
    except Refused as refused:
        form.add_error(None, refused.words)
        return ask_why(request, asked, form, status=409, **context)
    if wants_fragment(request):
        return render(request, "sends/switches/_done.html", context)
    return redirect(asked.back_url)


def _asked(request: MemberRequest, switch: Switch, turn: Turn) -> Asked:
    through, why = _through(switch), "sends/switches/_why.html"
    back, is_off = back_url(request), bool(switch.causes & Cause.PAUSED)
    if turn is halts.turn_off:
        title = f"Pause {through}"
        return Asked(title, why, title, "Pausing…", "is-stop", "stop", back, may=not is_off)
    title, button = f"Resume {through}", "Resume sending"
    return Asked(title, why, button, "Resuming…", "is-main", "play", back, may=is_off)


def _result(switch: Switch) -> results.Result:
    return {"causes": switch.causes}


def _through(switch: Switch) -> str:
    """What goes through it, in words."""
    if switch.kind == SwitchKind.ACCOUNT:
        return f"sending through {Account.objects.get(pk=switch.pk).slug}"
    if switch.kind == SwitchKind.SENDER:
        return f"sending through {Sender.objects.get(pk=switch.pk).address}"
    return "all sending"


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
