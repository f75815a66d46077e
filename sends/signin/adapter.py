"""What django-allauth asks us while somebody signs in."""

import time
from collections.abc import Mapping
from typing import Any

import qrcode
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.authentication import get_authentication_records
from allauth.account.internal.flows.login import record_authentication
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.contrib import messages
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from qrcode.image.svg import SvgPathImage

from sends.conf import conf
from sends.rules.addresses import normal

# By what somebody shows who they are; a link to a new password, in a mail, is not enough.
PROOFS = ("password", "mfa", "single_sign_on")
WORDS = {
    "reauthenticate": "Use your password",
    "mfa_reauthenticate": "Use a code",
    "mfa_reauthenticate:webauthn": "Use a passkey",
}


class Accounts(DefaultAccountAdapter):
    error_messages = DefaultAccountAdapter.error_messages | {
        "email_password_mismatch": "Email or password is not right.",
        "incorrect_password": "That is not your password.",
        "too_many_login_attempts": "Too many tries. Wait five minutes, then try again.",
        "rate_limited": "Too many tries. Wait a minute, then try again.",
        "incorrect_code": "That code is not right, or no longer.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def is_safe_url(self, url: str) -> bool:
        """Only addresses on this host, without its name."""
        return url.startswith("/") and url_has_allowed_host_and_scheme(url, None)

    def is_reauthentication_required(self, *, app: str) -> bool:
        """Who signed in just now has shown who they are."""
        records = get_authentication_records(context.request, context.request.user)
        latest = max((r["at"] for r in records if r["method"] in PROOFS), default=0.0)
        return bool(time.time() - latest >= conf.known_for.total_seconds())

    def get_client_ip(self, request: HttpRequest) -> str:
        """That of the nearest proxy, for whoever came past the one that should have noted more."""
        try:
            return str(super().get_client_ip(request))
        except ImproperlyConfigured:
            return str(request.META.get("REMOTE_ADDR", ""))

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Failures count for the address, however it is written and by whichever name of this
        host it is tried: as it comes, each port in the Host header would begin anew."""
        return normal(credentials.get("email", ""))

    def pre_login(self, request: HttpRequest, user: Any, **kwargs: Any) -> HttpResponse | None:
        """A passkey lets nobody in whom a password would not.

        Signing in elsewhere shows who somebody is as of when it was done there.
        """
        records = get_authentication_records(request, user)
        came_from_elsewhere = any(r["method"] == "socialaccount" for r in records)
        if not came_from_elsewhere and not user.may_use_password():
            return self.respond_user_inactive(request, user)
        sociallogin = (kwargs.get("signal_kwargs") or {}).get("sociallogin")
        if sociallogin is not None:
            at = signed_in_there_at(sociallogin.claims)
            record_authentication(request, user, "single_sign_on", at=at)
        answer: HttpResponse | None = super().pre_login(request, user, **kwargs)
        return answer

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        """Who has nothing to show here signs in elsewhere once more."""
        ways: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        for way in ways:
            way["description"] = WORDS[way["id"]]
        if not ways and user.is_authenticated:
            accounts = SocialAccount.objects.filter(user=user).order_by("provider")
            for slug in accounts.values_list("provider", flat=True).distinct():
                url = reverse("openid_connect_login", args=[slug])
                ways.append({"id": slug, "description": "Sign in again", "url": url})
        return ways

    def respond_user_inactive(self, request: HttpRequest, user: Any) -> HttpResponse:
        messages.error(request, "You have no access. Ask an admin.")
        return redirect("account_login")


def signed_in_there_at(claims: Mapping[str, Any]) -> float:
    """As a provider says; long ago where it does not."""
    at = claims.get("auth_time")
    return min(float(at), time.time()) if isinstance(at, int | float) else 0.0


class SecondFactors(DefaultMFAAdapter):
    error_messages = DefaultMFAAdapter.error_messages | {
        "incorrect_code": "That code is not right, or no longer.",
    }

    def get_totp_issuer(self) -> str:
        return "Outbox Admin"

    def generate_authenticator_name(self, user: Any, kind: Any) -> str:
        """A first one, to be made more telling."""
        count = Authenticator.objects.filter(user=user, type=kind).count()
        return f"Passkey {count + 1}"

    def build_totp_svg(self, url: str) -> str:
        """A drawing to stand in a page, where no picture may be loaded from a `data:` address."""
        return str(qrcode.make(url, image_factory=SvgPathImage).to_string(encoding="unicode"))
