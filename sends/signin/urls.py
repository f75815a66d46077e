"""The addresses of signing in and out, and of a person's own account.

Behind most of them stand the views of django-allauth. Only those that serve: nobody signs up.
"""

from allauth.account import views as account
from allauth.mfa.base import views as second_factor
from allauth.mfa.recovery_codes import views as recovery_codes
from allauth.mfa.totp import views as app_codes
from allauth.mfa.webauthn import views as passkeys
from allauth.usersessions import views as sessions
from django.urls import path, re_path, reverse_lazy
from django.views.decorators.http import require_POST

from sends.conf import conf
from sends.models import IdentityProvider
from sends.signin import single_sign_on
from sends.signin.invitations import invitation
from sends.signin.passwords import change_password

providers = IdentityProvider.objects
sign_in = account.LoginView.as_view(
    extra_context={
        "providers": providers.all,
        "only_elsewhere": providers.filter(is_only_way=True).exists,
    }
)
ask_for_reset = account.PasswordResetView.as_view(extra_context={"sends_mail": conf.sends_mail})
reset = account.PasswordResetFromKeyView.as_view(success_url=reverse_lazy("account_login"))

urlpatterns = [
    path("login/", sign_in, name="account_login"),
    path("login/with/<slug:provider_id>/", single_sign_on.there, name="openid_connect_login"),
    path(
        "login/with/<slug:provider_id>/callback/",
        single_sign_on.back,
        name="openid_connect_callback",
    ),
    path("login/second-factor/", second_factor.authenticate, name="mfa_authenticate"),
    path("login/passkey/", passkeys.login_webauthn, name="mfa_login_webauthn"),
    path("login/password/", ask_for_reset, name="account_reset_password"),
    path("login/password/asked/", account.password_reset_done, name="account_reset_password_done"),
    re_path(
        r"^login/password/(?P<uidb36>[0-9a-f]{32})-(?P<key>[^/]+)/$",
        reset,
        name="account_reset_password_from_key",
    ),
    path("invitation/<str:token>/", invitation, name="accept_invitation"),
    path("logout/", require_POST(account.logout), name="account_logout"),
    path("account/", second_factor.index, name="mfa_index"),
    path("account/password/", change_password, name="account_change_password"),
    path("account/sessions/", sessions.list_usersessions, name="usersessions_list"),
    path("account/confirm/", account.reauthenticate, name="account_reauthenticate"),
    path("account/confirm/code/", second_factor.reauthenticate, name="mfa_reauthenticate"),
    path(
        "account/confirm/passkey/",
        passkeys.reauthenticate_webauthn,
        name="mfa_reauthenticate_webauthn",
    ),
    path("account/app/", app_codes.activate_totp, name="mfa_activate_totp"),
    path("account/app/remove/", app_codes.deactivate_totp, name="mfa_deactivate_totp"),
    path("account/passkeys/", passkeys.list_webauthn, name="mfa_list_webauthn"),
    path("account/passkeys/add/", passkeys.add_webauthn, name="mfa_add_webauthn"),
    path("account/passkeys/<int:pk>/", passkeys.edit_webauthn, name="mfa_edit_webauthn"),
    path("account/passkeys/<int:pk>/remove/", passkeys.remove_webauthn, name="mfa_remove_webauthn"),
    path(
        "account/recovery-codes/",
        recovery_codes.view_recovery_codes,
        name="mfa_view_recovery_codes",
    ),
    path(
        "account/recovery-codes/new/",
        recovery_codes.generate_recovery_codes,
        name="mfa_generate_recovery_codes",
    ),
]
