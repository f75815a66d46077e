"""People: who belongs to this tenant, in which role, and who is invited."""

import uuid
from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.views.decorators.http import require_POST, require_safe

from sends.conf import conf
from sends.dashboard.access import MemberRequest, View, confirmed, for_role, with_second_factor
from sends.lifecycle import letters
from sends.lifecycle import people as steps
from sends.lifecycle.refusals import Refused
from sends.models import Invitation, Membership, Role, database_now

Step = Callable[..., object]


def _role_field(**more: Any) -> forms.TypedChoiceField:
    choices = [(int(role), role.label) for role in Role]
    return forms.TypedChoiceField(choices=choices, coerce=lambda found: Role(int(found)), **more)


class Invite(forms.Form):
    email = forms.EmailField(label="Email", max_length=254)
    role = _role_field(initial=Role.VIEWER)


class ChangeRole(forms.Form):
    role = _role_field()


@require_safe
@for_role(Role.ADMIN)
@confirmed
def people(request: MemberRequest) -> HttpResponse:
    return _people(request, Invite())


@require_POST
@for_role(Role.ADMIN)
@confirmed
def invite(request: MemberRequest) -> HttpResponse:
    """Answers with the page itself, since the link is shown once and kept nowhere."""
    form = Invite(request.POST)
    if not form.is_valid():
        return _people(request, form, status=422)
    try:
        invited = steps.invite(**form.cleaned_data, tenant=request.tenant, by=request.user)
    except Refused as refused:
        form.add_error("email", refused.words)
        return _people(request, form, status=409)
    is_mailed = conf.sends_mail and _is_mailed(request, invited)
    return _people(request, Invite(), invited=invited, is_mailed=is_mailed)


def _is_mailed(request: MemberRequest, invited: steps.Invited) -> bool:
    try:
        letters.mail_invitation(invited.invitation, invited.link)
    except OSError:
        messages.warning(request, "The mail server did not take the invitation.")
        return False
    return True


@require_POST
@for_role(Role.ADMIN)
@confirmed
def revoke(request: MemberRequest, invitation_id: uuid.UUID) -> HttpResponse:
    found = Invitation.objects.filter(pk=invitation_id, tenant=request.tenant)
    invitation = found.select_related("tenant").first()
    if invitation is None:
        raise Http404
    try:
        steps.revoke(invitation, by=request.user)
        messages.success(request, f"The invitation of {invitation.email} no longer holds.")
    except Refused as refused:
        messages.warning(request, refused.words)
    return redirect("dashboard:people")


def _people(
    request: MemberRequest, form: Invite, *, status: int = 200, **context: Any
) -> HttpResponse:
    members = with_second_factor(Membership.objects.filter(tenant=request.tenant))
    pending = Invitation.objects.pending(database_now()).filter(tenant=request.tenant)
    context |= {
        "members": members.select_related("person").order_by("person__email"),
        "pending": pending.select_related("invited_by").order_by("email"),
        "form": form,
        "sends_mail": conf.sends_mail,
    }
    return render(request, "sends/people/index.html", context, status=status)


@require_safe
@for_role(Role.ADMIN)
@confirmed
def person(request: MemberRequest, person_id: uuid.UUID) -> HttpResponse:
    return _person(request, _membership(request, person_id))


@require_POST
@for_role(Role.ADMIN)
@confirmed
def change_role(request: MemberRequest, person_id: uuid.UUID) -> HttpResponse:
    membership = _membership(request, person_id)
    form = ChangeRole(request.POST)
    if not form.is_valid():
        return _person(request, membership, form, status=422)
    try:
        role = form.cleaned_data["role"]
        steps.change_role(membership.person, role=role, tenant=request.tenant, by=request.user)
    except Refused as refused:
        form.add_error("role", refused.words)
        return _person(request, membership, form, status=409)
    messages.success(request, f"{membership.person} is now {role.label.lower()}.")
    return redirect("dashboard:person", person_id)


@require_POST
@for_role(Role.ADMIN)
@confirmed
def new_password(request: MemberRequest, person_id: uuid.UUID) -> HttpResponse:
    """Answers with the page itself, since the link is shown once."""
    membership = _membership(request, person_id)
    try:
        link = steps.new_password_link(membership.person, tenant=request.tenant, by=request.user)
    except Refused as refused:
        messages.warning(request, refused.words)
        return redirect("dashboard:person", person_id)
    return _person(request, membership, link=link)


def _deciding(step: Step, done: str) -> View:
    """A view that takes one step about a person, and says what it did."""

    @require_POST
    @for_role(Role.ADMIN)
    @confirmed
    def decide(request: MemberRequest, person_id: uuid.UUID) -> HttpResponse:
        about = _membership(request, person_id).person
        try:
            step(about, tenant=request.tenant, by=request.user)
            messages.success(request, done.format(about))
        except Refused as refused:
            messages.warning(request, refused.words)
            return redirect("dashboard:person", person_id)
        if step is steps.remove:
            return redirect("dashboard:people")
        return redirect("dashboard:person", person_id)

    return decide


def _membership(request: MemberRequest, person_id: uuid.UUID) -> Membership:
    members = with_second_factor(Membership.objects.filter(tenant=request.tenant))
    found = members.filter(person=person_id).select_related("person", "tenant").first()
    if found is None:
        raise Http404
    return found


def _person(
    request: MemberRequest,
    membership: Membership,
    form: ChangeRole | None = None,
    *,
    status: int = 200,
    link: str = "",
) -> HttpResponse:
    context = {
        "membership": membership,
        "person": membership.person,
        "form": form or ChangeRole(initial={"role": membership.role}),
        "link": link,
        "is_self": membership.person == request.user,
    }
    return render(request, "sends/people/detail.html", context, status=status)


ABOUT = "settings/people/<uuid:person_id>"
urlpatterns = [
    path("settings/people/", people, name="people"),
    path("settings/people/invite/", invite, name="invite"),
    path(
        "settings/people/invitations/<uuid:invitation_id>/revoke/",
        revoke,
        name="revoke_invitation",
    ),
    path(f"{ABOUT}/", person, name="person"),
    path(f"{ABOUT}/role/", change_role, name="change_role"),
    path(f"{ABOUT}/new-password/", new_password, name="new_password"),
    path(
        f"{ABOUT}/remove/",
        _deciding(steps.remove, "{} no longer belongs here."),
        name="remove_person",
    ),
    path(
        f"{ABOUT}/switch-off/",
        _deciding(steps.deactivate, "{} is switched off and signed out everywhere."),
        name="deactivate_person",
    ),
    path(
        f"{ABOUT}/switch-on/",
        _deciding(steps.reactivate, "{} may sign in again."),
        name="reactivate_person",
    ),
    path(
        f"{ABOUT}/reset-second-factor/",
        _deciding(steps.reset_second_factor, "{} has no second factor any more."),
        name="reset_second_factor",
    ),
    path(
        f"{ABOUT}/sign-out/",
        _deciding(steps.end_sessions, "{} is signed out everywhere."),
        name="end_sessions",
    ),
]
