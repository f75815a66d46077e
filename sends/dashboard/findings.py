"""The forms by which an operator says what became of an uncertain email."""

from typing import Any

from django import forms

from sends.dashboard.forms import Deciding


class Named(Deciding):
    """Which version is settled: the one on the page, whatever has come since."""

    version = forms.IntegerField(min_value=1, widget=forms.HiddenInput)


class Finding(Named):
    """What a person found out, and by what it can be seen."""

    value = forms.CharField(
        label="What shows it?",
        help_text="A provider id, a line of its log, an answer of its support.",
        max_length=255,
        error_messages={"required": "Say what shows it; it is kept as evidence"},
    )
    note = forms.CharField(
        label="How did you find out?",
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2}),
        error_messages={"required": "Say how you found out; it is kept as evidence"},
    )


class Accepted(Finding):
    provider_message_id = forms.CharField(
        label="The provider's id of the email, if you know it",
        help_text="Delivery news is matched by it.",
        max_length=255,
        required=False,
    )


GOES_ON = {
    "leave": "Leave it as a dead letter",
    "resend": "Send it again",
    "edit": "Edit it into a new version",
    "close": "Close it: it is not to be sent",
}


def _then() -> forms.ChoiceField:
    return forms.ChoiceField(
        label="And then?", choices=list(GOES_ON.items()), widget=forms.RadioSelect, initial="leave"
    )


class NotAccepted(Finding):
    """The finding; `then` is only there where no second operator has to confirm it."""

    then = _then()

    def __init__(self, *args: Any, alone: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not alone:
            del self.fields["then"]


class Confirming(Named):
    note = forms.CharField(
        label="What did you check?",
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2}),
        error_messages={"required": "Say what you checked; it is kept as evidence"},
    )
    then = _then()
