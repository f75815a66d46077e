"""What the deciding forms of all rooms share."""

from django import forms

from sends.models import new_id


class Deciding(forms.Form):
    """A form that decides something: sent twice, it decides once (`lifecycle.results`).

    Its `action_id` is made with the page.
    """

    action_id = forms.UUIDField(widget=forms.HiddenInput, initial=new_id)


class WithReason(Deciding):
    """A decision for which the person says why; the reason goes into the audit log."""

    reason = forms.CharField(
        label="Reason",
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2}),
        error_messages={"required": "Give a reason; it is kept in the audit log."},
    )
