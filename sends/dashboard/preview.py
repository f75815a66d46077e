"""The exact bytes of one version by its digest, where they can do no harm."""

from django.http import Http404, HttpResponse
from django.urls import path
from django.views.decorators.http import require_safe

from sends.dashboard.access import MemberRequest, for_role
from sends.lifecycle.attachments import AlteredAttachment, contents_of
from sends.models import Payload, Role
from sends.rules.mime import build
from sends.rules.payloads import Message, seal, thaw

HARMLESS = (
    "sandbox; default-src 'none'; img-src {images}; style-src 'unsafe-inline'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)


@require_safe
@for_role(Role.APPROVER)
def html(request: MemberRequest, digest: str) -> HttpResponse:
    """The HTML part. `?images=1` lets it load remote images, in this one view."""
    body = _message(request, digest).html
    images = "data: https:" if request.GET.get("images") == "1" else "data:"
    return _harmless(body, "text/html; charset=utf-8", images=images)


@require_safe
@for_role(Role.APPROVER)
def text(request: MemberRequest, digest: str) -> HttpResponse:
    return _harmless(_message(request, digest).text, "text/plain; charset=utf-8")


@require_safe
@for_role(Role.APPROVER)
def raw(request: MemberRequest, digest: str) -> HttpResponse:
    """The bytes that the digest is of."""
    response = _harmless(bytes(_payload(request, digest).body), "application/json")
    response["Content-Disposition"] = f'attachment; filename="payload-{digest[:8]}.json"'
    return response


@require_safe
@for_role(Role.APPROVER)
def eml(request: MemberRequest, digest: str) -> HttpResponse:
    """The email for a mail program, as its recipients would get it: without Bcc."""
    payload = _payload(request, digest)
    frozen = thaw(bytes(payload.body))
    try:
        contents = contents_of(payload.intent_id, frozen.message)
    except AlteredAttachment:
        raise Http404("An attachment of this email is not what its digest says.") from None
    built = build(frozen, date=payload.intent.created_at, contents=contents)
    response = _harmless(built, "message/rfc822")
    response["Content-Disposition"] = f'attachment; filename="email-{digest[:8]}.eml"'
    return response


def _message(request: MemberRequest, digest: str) -> Message:
    return thaw(bytes(_payload(request, digest).body)).message


def _payload(request: MemberRequest, digest: str) -> Payload:
    """What is stored, if it still is what its digest says."""
    payloads = Payload.objects.filter(intent__digest=digest, intent__tenant=request.tenant)
    payload = payloads.select_related("intent").first()
    if payload is None or seal(bytes(payload.body)) != digest:
        raise Http404("No email of yours has this digest.")
    return payload


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
]
