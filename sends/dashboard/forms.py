"""What the deciding forms of all rooms share."""

import uuid
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from sends.dashboard.requests import htmx_of, ours, wants_fragment
from sends.models import new_id


class Deciding(forms.Form):
    """A form that decides something: sent twice, it decides once (`lifecycle.results`).

    Its `action_id` is made with the page.
    """

    action_id = forms.UUIDField(widget=forms.HiddenInput, initial=new_id)

    def once_about(self, about: uuid.UUID) -> uuid.UUID:
        """The id under which a decision about one thing is kept.

        A browser that fills in a page anew may put the hidden id of one email into the form of
        another, which must not pass for a repetition.
        """
        return uuid.uuid5(self.cleaned_data["action_id"], str(about))


class WithReason(Deciding):
    """A decision for which the person says why; the reason goes into the audit log."""

    reason = forms.CharField(
        label="Reason",
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2}),
        error_messages={"required": "Give a reason; it is kept in the audit log."},
    )


@dataclass(frozen=True)
class Asked:
    """What `sends/parts/_reason.html` asks a reason for; `explains` is the template that says it.

    Where it is so already, or may not be done, there is only the way back.
    """

    title: str
    explains: str
    button: str
    busy: str
    tone: str
    icon_name: str
    back_url: str
    may: bool = True


def ask_why(
    request: HttpRequest, asked: Asked, form: WithReason, *, status: int, **context: Any
) -> HttpResponse:
    """The form in a dialog, or on a page of its own."""
    name = "_reason" if wants_fragment(request) else "reason"
    context |= {"asked": asked, "form": form}
    return render(request, f"sends/parts/{name}.html", context, status=status)


def back_url(request: HttpRequest) -> str:
    """Where the form was opened; it keeps that, since without JavaScript it is a page."""
    sent = request.POST.get("back")
    if sent is None:
        sent = htmx_of(request).current_url or request.headers.get("Referer", "")
    return ours(request, sent)
