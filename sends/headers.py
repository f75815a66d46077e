"""What every answer forbids the browser, beside what Django's own middleware does."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

# No page of ours needs them; an email that is shown on one must not have them either.
FORBIDDEN = ("camera", "microphone", "geolocation", "payment", "usb", "display-capture")
PERMISSIONS = ", ".join(f"{feature}=()" for feature in FORBIDDEN)


def with_permissions_policy(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Permissions-Policy"] = PERMISSIONS
        return response

    return middleware
