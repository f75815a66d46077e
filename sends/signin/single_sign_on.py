"""Signing in through an identity provider, by OpenID Connect.

The way there and back is django-allauth's; stricter than its own, an ID token is believed only
with its signature, its issuer, its audience and the nonce of this very sign-in.
"""

import time
from typing import Any

import jwt
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.helpers import render_authentication_error
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.utils import generate_code_challenge
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe
from requests import RequestException

from sends.conf import conf
from sends.lifecycle.letters import link_to
from sends.lifecycle.refusals import Refused
from sends.lifecycle.single_sign_on import Claims, arrive, secret_of
from sends.models import IdentityProvider
from sends.rules.keys import sha256
from sends.signin.adapter import signed_in_there_at

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]  # no shared secrets
CLOCKS_DIFFER_SECONDS = 60


class NotBelieved(OAuth2Error):
    """Why what a provider says does not count, in words for the person who signs in."""


class Way(OpenIDConnectOAuth2Adapter):
    """What is asked of one provider during one sign-in."""

    @property
    def openid_config(self) -> dict[str, Any]:
        try:
            config: dict[str, Any] = super().openid_config
        except (RequestException, ValueError) as error:
            raise NotBelieved("its description cannot be read") from error
        issuer = self.get_provider().app.settings["server_url"]
        needed = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        if config.get("issuer", "").rstrip("/") != issuer or not all(map(config.get, needed)):
            raise NotBelieved("its description is not that of the issuer")
        return config

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        return link_to("openid_connect_callback", provider_id=self.provider_id)

    def get_access_token_data(
        self, request: HttpRequest, app: SocialApp, client: Any, pkce_code_verifier: Any = None
    ) -> Any:
        self.nonce = nonce_of(pkce_code_verifier or "")
        return super().get_access_token_data(request, app, client, pkce_code_verifier)

    def complete_login(
        self, request: HttpRequest, app: SocialApp, token: Any, **kwargs: Any
    ) -> Any:
        try:
            claims = self._checked(app, kwargs["response"].get("id_token") or "")
            if not {"email", app.settings["claim"]} <= claims.keys():
                more = self._fetch_user_info(token.token)
                if more.get("sub") != claims["sub"]:
                    raise NotBelieved("its user info is about somebody else")
                claims = more | claims
        except (jwt.PyJWTError, ValueError, KeyError) as error:
            raise NotBelieved(f"its answer is not believed: {type(error).__name__}") from error
        login = self.get_provider().sociallogin_from_response(request, {"id_token": claims})
        login.claims = claims
        return login

    def _checked(self, app: SocialApp, id_token: str) -> dict[str, Any]:
        header = jwt.get_unverified_header(id_token)
        with self.session() as session:
            answer = session.get(self.openid_config["jwks_uri"])
            answer.raise_for_status()
            keys = jwt.PyJWKSet.from_dict(answer.json()).keys
        fitting = [key for key in keys if header.get("kid") in (key.key_id, None)]
        if not fitting:
            raise NotBelieved("it signs with a key that it does not publish")
        claims: dict[str, Any] = jwt.decode(
            id_token,
            fitting[0].key,
            algorithms=ALGORITHMS,
            audience=app.client_id,
            issuer=self.openid_config["issuer"],
            leeway=CLOCKS_DIFFER_SECONDS,
            options={"require": ["exp", "iat", "iss", "aud", "sub", "nonce"]},
        )
        if claims["nonce"] != self.nonce or claims.get("azp", app.client_id) != app.client_id:
            raise NotBelieved("its answer is of another sign-in")
        return claims

    def session(self) -> Any:
        return SingleSignOns(self.request).get_requests_session()


class Provider(OpenIDConnectProvider):
    oauth2_adapter_class = Way

    def serialize(self) -> dict[str, Any]:
        """By which it is found again after the second factor."""
        return {"id": self.app.provider_id}

    def get_pkce_params(self) -> dict[str, Any]:
        """With the nonce: it follows from the verifier, which this session alone knows."""
        params: dict[str, Any] = generate_code_challenge()
        return params | {"nonce": nonce_of(params["code_verifier"])}

    def get_redirect_from_request_kwargs(self, request: HttpRequest) -> dict[str, Any]:
        """Nothing that the address says but where to go on: it may be of somebody else's making."""
        kwargs: dict[str, Any] = super().get_redirect_from_request_kwargs(request)
        again = {"prompt": "login", "max_age": "0"}  # with the latter, it has to say auth_time
        params = again if request.user.is_authenticated else {}
        return kwargs | {"process": "login", "scope": self.get_scope(), "auth_params": params}

    def extract_uid(self, data: Any) -> str:
        """One subject of one issuer: another issuer may give the same name to somebody else."""
        issuer, subject = self.app.settings["server_url"], super().extract_uid(data)
        return sha256(f"{issuer} {subject}".encode())

    def extract_extra_data(self, data: Any) -> dict[str, Any]:
        return {}  # what it says is used at once and not kept


class SingleSignOns(DefaultSocialAccountAdapter):
    def get_provider(self, request: HttpRequest, provider: str, client_id: Any = None) -> Provider:
        found = IdentityProvider.objects.filter(slug=provider).first()
        if found is None:
            raise SocialApp.DoesNotExist
        app = SocialApp(
            provider=Provider.id,
            provider_id=found.slug,
            name=found.name,
            client_id=found.client_id,
            secret=secret_of(found),
            settings={"server_url": found.issuer, "claim": found.claim},
        )
        return Provider(request, app=app)

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return False

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Whoever the claims give a role is let in; whoever they give none is told so.

        Who is signed in here was sent there to sign in anew, and the address of that can be
        changed on the way: only what the provider then says of the time counts.
        """
        provider = IdentityProvider.objects.get(slug=sociallogin.account.provider)
        passed = time.time() - signed_in_there_at(sociallogin.claims)
        if request.user.is_authenticated and passed >= conf.known_for.total_seconds():
            raise _turned_away(
                request,
                f"{provider} did not say that you signed in there just now (auth_time), so that"
                " does not show who you are.",
            )
        claims = _claims(sociallogin.account.uid, sociallogin.claims, provider)
        try:
            person = arrive(provider, claims)
        except Refused as refused:
            raise _turned_away(request, refused.words) from None
        if person is None:
            raise _turned_away(request, f"{provider} gives you no role here. Ask an admin.")
        if not sociallogin.is_existing:
            sociallogin.lookup()

    def on_authentication_error(
        self, request: HttpRequest, provider: Provider, *args: Any, **kwargs: Any
    ) -> None:
        exception = kwargs.get("exception")
        because = f": {exception}" if isinstance(exception, NotBelieved) else ""
        raise _turned_away(request, f"{provider.name} did not say who you are{because}. Try again.")


def _claims(subject: str, claims: dict[str, Any], provider: IdentityProvider) -> Claims:
    values = claims.get(provider.claim, [])
    values = values if isinstance(values, list) else [values]
    return Claims(
        subject=subject,
        email=str(claims.get("email", "")),
        is_verified=claims.get("email_verified") in (True, "true"),
        values=frozenset(str(value) for value in values if isinstance(value, str | int)),
    )


def _turned_away(request: HttpRequest, words: str) -> ImmediateHttpResponse:
    messages.error(request, words)
    return ImmediateHttpResponse(redirect("account_login"))


def nonce_of(code_verifier: str) -> str:
    return sha256(f"nonce {code_verifier}".encode())


@require_safe
def there(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _on_the_way(request, provider_id, OAuth2LoginView)


@require_safe
def back(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _on_the_way(request, provider_id, OAuth2CallbackView)


def _on_the_way(request: HttpRequest, provider_id: str, view: Any) -> HttpResponse:
    way = Way(request, provider_id)
    try:
        answer: HttpResponse = view.adapter_view(way)(request)
    except SocialApp.DoesNotExist:
        raise Http404 from None
    except OAuth2Error as error:
        answer = render_authentication_error(request, way.get_provider(), exception=error)
    return answer
