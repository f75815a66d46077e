"""The forms of django-allauth in our words; what they check is theirs."""

from typing import Any

from allauth.account import forms as account
from allauth.mfa.base import forms as second_factor
from allauth.mfa.totp import forms as app_codes
from django.forms import Form
from django.http import HttpRequest
from django_q.tasks import async_task

MAIL_RESET = "sends.tasks.mail_reset"


class Plain(Form):
    """Labels stand above the fields; nothing stands in them as well."""

    labels: dict[str, str] = {}
    hints: dict[str, str] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            field.label = self.labels.get(name, field.label)
            field.help_text = self.hints.get(name, "")
            field.widget.attrs.pop("placeholder", None)


class SignIn(Plain, account.LoginForm): ...


class ShowWhoYouAre(Plain, account.ReauthenticateForm): ...


class AskForReset(Plain, account.ResetPasswordForm):
    """Whoever asks gets the same answer after the same work: the worker looks who it is."""

    def clean_email(self) -> str:
        email: str = self.cleaned_data["email"]
        return email

    def save(self, request: HttpRequest, **kwargs: Any) -> str:
        email: str = self.cleaned_data["email"]
        async_task(MAIL_RESET, email)
        return email


GOOD = {"password1": "At least 8 characters, and not one that many people use"}


class Reset(Plain, account.ResetPasswordKeyForm):
    labels = {"password1": "New password", "password2": "New password again"}
    hints = GOOD


class ChangePassword(Plain, account.ChangePasswordForm):
    labels = {
        "oldpassword": "Password until now",
        "password1": "New password",
        "password2": "New password again",
    }
    hints = GOOD


CODE = {"code": "Six digits of the app, or a recovery code"}


class SecondFactor(Plain, second_factor.AuthenticateForm):
    hints = CODE


class ShowWhoYouAreByCode(Plain, second_factor.ReauthenticateForm):
    hints = CODE


class AddApp(Plain, app_codes.ActivateTOTPForm):
    labels = {"code": "Six digits that the app shows"}
