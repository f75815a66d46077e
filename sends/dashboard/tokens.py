"""Tokens by which agents are known: made, shown once, and taken back."""

import uuid
from datetime import UTC, datetime, time
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.http import require_POST, require_safe

from sends.dashboard.access import MemberRequest, confirmed, for_role
from sends.lifecycle import tokens as steps
from sends.lifecycle.refusals import Refused
from sends.models import Agent, Role, Scope, Tenant, Token, database_now


class NewToken(forms.Form):
    agent = forms.ModelChoiceField(Agent.objects.none(), empty_label=None)
    name = forms.CharField(max_length=120, help_text="Where it is used, so that you know it again.")
    scopes = forms.MultipleChoiceField(
        label="What it may do",
        choices=Scope.choices,
        initial=Scope.values,
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one thing that it may do."},
    )
    last_day = forms.DateField(
        label="Last day",
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}),
        help_text="In UTC. Without one it is good until you take it back.",
    )

    def __init__(self, *args: Any, tenant: Tenant, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        agents = Agent.objects.filter(tenant=tenant).order_by("slug")
        self.fields["agent"].queryset = agents  # type: ignore[attr-defined]

    def clean_last_day(self) -> datetime | None:
        day = self.cleaned_data["last_day"]
        end = datetime.combine(day, time.max, UTC) if day else None
        if end is not None and end < database_now():
            raise forms.ValidationError("That day is over; give a later one, or none.")
        return end


@require_safe
@for_role(Role.ADMIN)
@confirmed
def tokens(request: MemberRequest) -> HttpResponse:
    return _page(request, NewToken(tenant=request.tenant))


@require_POST
@for_role(Role.ADMIN)
@confirmed
def issue(request: MemberRequest) -> HttpResponse:
    """Answers with the page itself, since the token is shown once and kept nowhere."""
    form = NewToken(request.POST, tenant=request.tenant)
    if not form.is_valid():
        return _page(request, form, status=422)
    given = form.cleaned_data
    try:
        token, secret = steps.issue(
            given["agent"],
            name=given["name"],
            scopes=given["scopes"],
            expires_at=given["last_day"],
            by=request.user,
        )
    except Refused as refused:
        form.add_error("name", refused.words)
        return _page(request, form, status=409)
    return _page(request, NewToken(tenant=request.tenant), made=token, secret=secret)


@require_POST
@for_role(Role.ADMIN)
@confirmed
def revoke(request: MemberRequest, token_id: uuid.UUID) -> HttpResponse:
    found = Token.objects.filter(pk=token_id, tenant=request.tenant)
    token = found.select_related("agent", "tenant").first()
    if token is None:
        raise Http404
    try:
        steps.revoke(token, by=request.user)
        messages.success(request, f"The token {token.name} of {token.agent} lets nobody in.")
    except Refused as refused:
        messages.warning(request, refused.words)
    return redirect("dashboard:tokens")


def _page(
    request: MemberRequest, form: NewToken, *, status: int = 200, **context: Any
) -> HttpResponse:
    found = Token.objects.filter(tenant=request.tenant).select_related("agent")
    context |= {
        "tokens": found.order_by("revoked_at", "agent__slug", "name"),
        "form": form,
        "now": database_now(),
    }
    return render(request, "sends/tokens/index.html", context, status=status)


urlpatterns = [
    path("settings/tokens/", tokens, name="tokens"),
    path("settings/tokens/issue/", issue, name="issue_token"),
    path("settings/tokens/<uuid:token_id>/revoke/", revoke, name="revoke_token"),
]
