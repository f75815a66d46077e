"""Writing the next version of an email: compared with the one it replaces before it is saved."""

import re
from dataclasses import replace
from typing import Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.template.defaultfilters import filesizeformat
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods

from sends.conf import conf
from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.approvals import message_url, version_of
from sends.dashboard.conflicts import note_of
from sends.dashboard.emails import Email
from sends.dashboard.forms import Deciding
from sends.lifecycle import editing, results
from sends.lifecycle.obstacles import refuse_out, refuse_purged, why_decided
from sends.lifecycle.refusals import Refused
from sends.models import Role, SendIntent, database_now
from sends.rules.differences import compare, quoted
from sends.rules.payloads import Attachment, Message, content_digest
from sends.rules.proposals import WrongProposal, parse
from sends.rules.statuses import Status
from sends.templatetags.outbox import visible

BOXES = ("to", "cc", "bcc")
MOST_LINES = 8  # of addresses that are shown without scrolling
POINTER = re.compile(r"/(to|cc|bcc)/(\d+)(?:/\w+)?")


def boxes_field(label: str, *, required: bool = False) -> forms.CharField:
    return forms.CharField(label=label, required=required, widget=forms.Textarea(attrs={"rows": 1}))


class Editor(Deciding):
    """The next version. `digest` is that of the version which it replaces.

    `compared` is the digest of what the person has seen compared: nothing else is saved.
    """

    digest = forms.RegexField(r"^[0-9a-f]{64}\Z", widget=forms.HiddenInput)
    compared = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)
    to = boxes_field("To", required=True)
    cc = boxes_field("Cc")
    bcc = boxes_field("Bcc")
    subject = forms.CharField(label="Subject", required=False, strip=False)
    text = forms.CharField(
        label="Plain text",
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"class": "tall", "rows": 14}),
    )
    html = forms.CharField(
        label="HTML",
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"class": "tall code", "rows": 14, "spellcheck": "false"}),
    )
    reason = forms.CharField(
        label="Why do you change it?",
        help_text="The agent reads this text through the API.",
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2}),
        error_messages={"required": "Give a reason for the new version"},
    )

    def __init__(self, *args: Any, base: Message, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.base = base
        for name in BOXES:
            self.fields[name].help_text = "One address a line."
            lines = str(self[name].value() or "").count("\n") + 1
            self.fields[name].widget.attrs["rows"] = min(lines, MOST_LINES)
        if base.attachments:
            self.fields["attachments"] = forms.MultipleChoiceField(
                required=False,
                widget=forms.CheckboxSelectMultiple,
                choices=[(str(place), _named(one)) for place, one in enumerate(base.attachments)],
            )

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if not self.errors:
            given["message"] = self._message(given)
        return given

    def _message(self, given: dict[str, Any]) -> Message | None:
        """The base with what was typed, checked as an agent's proposal is; None if it is wrong."""
        bodies = {name: _body(given[name], getattr(self.base, name)) for name in ("text", "html")}
        document = {
            **{name: given[name].split("\n") for name in BOXES},
            **{name: body for name, body in bodies.items() if body is not None},
            "subject": given["subject"],
        }
        for name in BOXES:
            lines = (line.strip().rstrip(",;") for line in document[name])
            document[name] = [line for line in lines if line]
        try:
            proposal = parse(document, needs_key=False, limits=conf.limits)
        except WrongProposal as wrong:
            self._complain(wrong)
            return None
        typed = proposal.message(self.base.sender)
        return replace(
            self.base,
            to=typed.to,
            cc=typed.cc,
            bcc=typed.bcc,
            subject=typed.subject,
            text=typed.text,
            html=typed.html,
            attachments=self._picked(given, typed.html),
        )

    def _picked(self, given: dict[str, Any], html: str | None) -> tuple[Attachment, ...]:
        picked = set(given.get("attachments", ()))
        kept = [one for place, one in enumerate(self.base.attachments) if str(place) in picked]
        if not html and any(one.inline for one in kept):
            self.add_error("attachments", "Some are part of the HTML: leave them out, or keep it")
        return tuple(kept)

    def _complain(self, wrong: WrongProposal) -> None:
        for error in wrong.errors:
            name = error.pointer.split("/")[1] if "/" in error.pointer else ""
            where = f"{_in_words(error.pointer)}: " if name in BOXES else ""
            words = f"{where}{_in_words(error.detail)}"
            self.add_error(name if name in self.fields else None, words)


def _in_words(said: str) -> str:
    """An agent counts its recipients from /to/0; a person reads "To, line 1"."""
    return POINTER.sub(lambda found: f"{found[1].capitalize()}, line {int(found[2]) + 1}", said)


def _body(typed: str, before: str | None) -> str | None:
    """What was typed; a body that nobody touched stays as it was to the byte.

    Browsers send line ends as CR LF, whatever they were.
    """
    typed = typed.replace("\r\n", "\n")
    if before is None:
        return typed or None
    return before if typed == before.replace("\r\n", "\n") else typed or None


def _named(attachment: Attachment) -> SafeString:
    where = ", in the HTML" if attachment.inline else ""
    size = filesizeformat(attachment.size)
    return format_html("{} ({}{})", visible(attachment.filename), size, where)


@require_http_methods(["GET", "POST"])
@for_role(Role.APPROVER)
def edit(request: MemberRequest, number: int) -> HttpResponse:
    """The first POST shows the comparison; the second, of the same text, saves it."""
    intent = version_of(request, number)
    base = Email(intent).message
    obstacle = _obstacle(intent)
    if base is None or obstacle is not None:
        return _page(request, intent, note=note_of(obstacle) if obstacle else None, status=409)
    if request.method != "POST":
        return _page(request, intent, form=Editor(initial=_typed(intent, base), base=base))
    form = Editor(request.POST, base=base)
    if not form.is_valid():
        return _page(request, intent, form=form, status=422)
    given = form.cleaned_data
    if given["compared"] != content_digest(given["message"]) or given["digest"] != intent.digest:
        return _compared(request, intent, form, base)

    def save() -> results.Result:
        newer = editing.edit(
            intent.pk,
            person=request.user,
            message=given["message"],
            digest=given["digest"],
            reason=given["reason"],
        )
        return {"version": newer.version}

    try:
        results.once(request.user, form.once_about(intent.action_id), "edit", database_now(), save)
    except Refused as refused:
        return _page(request, intent, form=form, note=note_of(refused), status=409)
    return redirect(reverse("dashboard:approval", args=[number]))


def _obstacle(intent: SendIntent) -> Refused | None:
    """Why this version cannot be replaced now; asked again, under lock, when it is saved."""
    try:
        refuse_out(intent)
        refuse_purged(intent)
    except Refused as refused:
        return refused
    if intent.status in (Status.REJECTED, Status.CANCELLED):
        return why_decided(intent)
    return None


def _typed(intent: SendIntent, base: Message) -> dict[str, Any]:
    return {
        "digest": intent.digest,
        **{name: "\n".join(quoted(box) for box in getattr(base, name)) for name in BOXES},
        "subject": base.subject,
        "text": base.text or "",
        "html": base.html or "",
        "attachments": [str(place) for place in range(len(base.attachments))],
    }


def _compared(
    request: MemberRequest, intent: SendIntent, form: Editor, base: Message
) -> HttpResponse:
    """The form again, above it what would change; from here on it would be saved."""
    message = form.cleaned_data["message"]
    parts = compare(base, message)
    changes = sum(part.changes for part in parts)
    was_replaced = form.cleaned_data["digest"] != intent.digest
    data = request.POST.copy()
    data["compared"] = content_digest(message) if changes else ""
    data["digest"] = intent.digest
    again = Editor(data, base=base)
    again.is_valid()
    return _page(
        request,
        intent,
        form=again,
        parts=parts,
        changes=changes,
        was_replaced=was_replaced,
        status=409 if was_replaced else 200,
    )


def _page(
    request: MemberRequest, intent: SendIntent, *, status: int = 200, **context: Any
) -> HttpResponse:
    context |= {
        "intent": intent,
        "next_version": intent.version + 1,
        "message_url": message_url(intent),
        "now": database_now(),
    }
    return render(request, "sends/editing/index.html", context, status=status)


urlpatterns = [path("messages/<int:number>/edit/", edit, name="edit")]
