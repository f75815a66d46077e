"""Writing a new email in the thread of one that is out, or may be."""

from dataclasses import replace
from typing import Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import path, reverse
from django.views.decorators.http import require_http_methods

from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.conflicts import Note, note_of
from sends.dashboard.editing import BOXES, Editor
from sends.dashboard.emails import Email
from sends.dashboard.message import named_version
from sends.dashboard.requests import go_to, wants_fragment
from sends.lifecycle import editing, results
from sends.lifecycle.obstacles import purged
from sends.lifecycle.refusals import Refused
from sends.models import Role, SendIntent, database_now
from sends.rules.differences import quoted
from sends.rules.payloads import Message


class FollowUp(Editor):
    """As the form for the next version, but for a message of its own that replaces none."""

    reason = forms.CharField(
        label="Why is it needed?",
        help_text="Whoever approves it reads this.",
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2}),
        error_messages={"required": "Give a reason for the follow-up"},
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.fields["digest"], self.fields["compared"]


@require_http_methods(["GET", "POST"])
@for_role(Role.APPROVER)
def follow_up(request: MemberRequest, number: int) -> HttpResponse:
    intent = named_version(request, number)
    base = _begun(intent)
    if base is None:
        note = note_of(purged(intent.purged_at)) if intent.purged_at else FORGOTTEN
        return _write(request, intent, note=note, status=409)
    if request.method != "POST":
        return _write(request, intent, FollowUp(initial=_typed(base), base=base))
    form = FollowUp(request.POST, base=base)
    if not form.is_valid():
        return _write(request, intent, form, status=422)
    given = form.cleaned_data

    def write() -> results.Result:
        created = editing.follow_up(
            intent.pk, person=request.user, message=given["message"], reason=given["reason"]
        )
        return {"number": created.action.number}

    try:
        result, _ = results.once(
            request.user, form.once_about(intent.pk), "follow_up", database_now(), write
        )
    except Refused as refused:
        return _write(request, intent, form, note=note_of(refused), status=409)
    return go_to(request, reverse("dashboard:message", args=[result["number"]]))


FORGOTTEN = Note(
    "rest", "no", "The email is no longer stored", "Without it nothing can be written in answer."
)


def _begun(intent: SendIntent) -> Message | None:
    """The follow-up as it begins: to the same people, in the thread, with nothing said yet.

    What was attached is offered, and is not attached again unless the person ticks it.
    """
    before = Email(intent).message
    if before is None:
        return None
    subject = before.subject
    if not subject.lower().startswith("re:"):
        subject = f"Re: {subject}"
    beside = tuple(one for one in before.attachments if not one.inline)
    begun = Message(before.sender, before.to, before.cc, before.bcc, before.reply_to, subject)
    return replace(begun, attachments=beside)


def _typed(base: Message) -> dict[str, Any]:
    boxes = {name: "\n".join(quoted(box) for box in getattr(base, name)) for name in BOXES}
    return {**boxes, "subject": base.subject}


def _write(
    request: MemberRequest,
    intent: SendIntent,
    form: FollowUp | None = None,
    *,
    note: Note | None = None,
    status: int = 200,
) -> HttpResponse:
    name = "_form" if wants_fragment(request) else "index"
    context = {"intent": intent, "form": form, "note": note, "now": database_now()}
    return render(request, f"sends/followups/{name}.html", context, status=status)


urlpatterns = [path("messages/<int:number>/follow-up/", follow_up, name="follow_up")]
