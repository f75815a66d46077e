"""The exact bytes of one version by its digest, where they can do no harm."""

from collections.abc import Callable, Sequence
from functools import wraps

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.attachments import MOST_SHOWN, pictures_of
from sends.lifecycle.attachments import AlteredAttachment, contents_of
from sends.models import Payload, Role, SendIntent, database_now
from sends.rules.markup import with_pictures
from sends.rules.mime import build
from sends.rules.payloads import Attachment, Message, seal, thaw

HARMLESS = (
    "sandbox; default-src 'none'; img-src {images}; style-src 'unsafe-inline'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)


def of_digest(
    view: Callable[..., HttpResponse],
) -> Callable[..., HttpResponse]:
    """Hand the view what is stored under the digest, if it still is what that says."""

    @wraps(view)
    def found(request: MemberRequest, digest: str, **place: int) -> HttpResponse:
        intent = SendIntent.objects.filter(digest=digest, tenant=request.tenant).first()
        payload = Payload.objects.select_related("intent").filter(intent=intent).first()
        if intent is not None and intent.purged_at is not None:
            context = {"intent": intent, "now": database_now()}
            return render(request, "sends/preview/deleted.html", context, status=410)
        if payload is None or seal(bytes(payload.body)) != digest:
            raise Http404("No email of yours has this digest.")
        return view(request, payload, **place)

    return found


@require_safe
@for_role(Role.APPROVER)
@of_digest
def html(request: MemberRequest, payload: Payload) -> HttpResponse:
    """The HTML part, with the pictures that it brings along.

    `?images=1` lets it load remote ones, in this one view.
    """
    message = _message(payload)
    body = message.html and with_pictures(
        message.html, pictures_of(payload.intent_id, message), most=MOST_SHOWN
    )
    images = "data: https:" if request.GET.get("images") == "1" else "data:"
    return _harmless(body, "text/html; charset=utf-8", images=images)


@require_safe
@for_role(Role.APPROVER)
@of_digest
def text(request: MemberRequest, payload: Payload) -> HttpResponse:
    return _harmless(_message(payload).text, "text/plain; charset=utf-8")


@require_safe
@for_role(Role.APPROVER)
@of_digest
def raw(request: MemberRequest, payload: Payload) -> HttpResponse:
    """The bytes that the digest is of."""
    response = _harmless(bytes(payload.body), "application/json")
    name = f"payload-{payload.intent.digest[:8]}.json"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@require_safe
@for_role(Role.APPROVER)
@of_digest
def eml(request: MemberRequest, payload: Payload) -> HttpResponse:
    """The email for a mail program, as its recipients would get it: without Bcc."""
    frozen = thaw(bytes(payload.body))
    contents = _contents(payload, frozen.message.attachments)
    built = build(frozen, date=payload.intent.created_at, contents=contents)
    response = _harmless(built, "message/rfc822")
    name = f"email-{payload.intent.digest[:8]}.eml"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@require_safe
@for_role(Role.APPROVER)
@of_digest
def attachment(request: MemberRequest, payload: Payload, place: int) -> HttpResponse:
    """The file in this place, to be kept and not to be shown, whatever it says it is."""
    message = _message(payload)
    if not 1 <= place <= len(message.attachments):
        raise Http404("This email has no such attachment.")
    file = message.attachments[place - 1]
    response = _harmless(_contents(payload, [file])[file.sha256], "application/octet-stream")
    response["Content-Disposition"] = content_disposition_header(True, file.filename)
    return response


def _contents(payload: Payload, files: Sequence[Attachment]) -> dict[str, bytes]:
    try:
        return contents_of(payload.intent_id, files)
    except AlteredAttachment:
        raise Http404("An attachment of this email is not what its digest says.") from None


def _message(payload: Payload) -> Message:
    return thaw(bytes(payload.body)).message


def _harmless(body: str | bytes | None, kind: str, *, images: str = "data:") -> HttpResponse:
    if body is None:
        raise Http404("This email has no such part.")
    response = HttpResponse(body, content_type=kind)
    response["Content-Security-Policy"] = HARMLESS.format(images=images)
    response["X-Frame-Options"] = "SAMEORIGIN"
    response["Referrer-Policy"] = "no-referrer"
    response["X-Content-Type-Options"] = "nosniff"
    response["Cross-Origin-Resource-Policy"] = "same-origin"
    return response


urlpatterns = [
    path("payload/<slug:digest>/eml/", eml, name="payload_eml"),
    path("payload/<slug:digest>/html/", html, name="payload_html"),
    path("payload/<slug:digest>/text/", text, name="payload_text"),
    path("payload/<slug:digest>/raw/", raw, name="payload_raw"),
    path("payload/<slug:digest>/attachments/<int:place>/", attachment, name="payload_attachment"),
]
