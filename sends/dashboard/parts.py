"""The page that shows every part the screens are made of, side by side."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from sends.rules.statuses import DeliveryState, Status
from sends.templatetags.outbox import LOOKS

NOW = datetime(2026, 10, 14, 12, 48, 7, tzinfo=UTC)
FIRST, SECOND = (digest * 8 for digest in ("7f3a91c4", "c2905e1b"))


class SendBack(forms.Form):
    """Made to show every kind of field with and without something wrong."""

    outcome = forms.ChoiceField(
        label="What should happen?",
        choices=[
            ("changes", "Ask for changes: the agent may answer with version 2"),
            ("reject", "Reject: this email is not to be sent"),
        ],
        widget=forms.RadioSelect,
    )
    reason = forms.ChoiceField(
        label="Reason",
        choices=[
            (word, word)
            for word in ("Wrong facts", "Wrong recipient", "Tone", "Not needed", "Other")
        ],
        widget=forms.RadioSelect,
    )
    retries = forms.IntegerField(
        label="Add retries to the budget", widget=forms.NumberInput(attrs={"class": "short"})
    )
    template = forms.ChoiceField(label="Template", choices=[("order-delay", "order-delay")])
    note = forms.CharField(
        label="What should be different?",
        help_text="The agent reads this text through the API.",
        widget=forms.Textarea(attrs={"rows": 3}),
        error_messages={"required": "Say what is wrong, so the agent can use it"},
    )


def parts(request: HttpRequest) -> HttpResponse:
    given = {"outcome": "changes", "reason": "Tone", "retries": 20, "template": "order-delay"}
    return render(
        request,
        "sends/parts/index.html",
        {
            "now": NOW,
            "states": [*Status, *DeliveryState, *(key for key in LOOKS if key not in KNOWN)],
            "form": SendBack(given),
            "moments": [NOW - timedelta(minutes=6), NOW + timedelta(hours=23, minutes=54)],
            "digests": {"first": FIRST, "second": SECOND},
            **EXAMPLES,
        },
    )


KNOWN = {*Status, *DeliveryState}

EXAMPLES: dict[str, Any] = {
    "undo": {
        "title": "#48209 approved",
        "text": "to customer-3310@example.net",
        "seconds": 21,
        "of_seconds": 30,
        "url": "/messages/48209/undo/",
        "action_id": "0199e2b0-0000-7000-8000-000000000000",
    },
    "stations": [
        {"words": "Created", "text": "09:12:40", "done": True},
        {"words": "Approved by 2", "text": "14 min later", "done": True},
        {"words": "Accepted by provider", "text": "36 s later, 2 attempts", "done": True},
        {"words": "Delivered to 1 of 2", "text": "1 deferred since 09:27", "tone": "wait"},
    ],
    "window": {
        "label": "The key is good for 24 hours from the first attempt at 09:14 on 14 October."
        " It is now 14:48. The last 2 hours, from 07:14, are kept as a safety margin.",
        "now_at": 23.2,
        "safe_at": 91.67,
        "margin": 8.33,
        "marks": [0, 0.4],
        "start_words": "14 Oct, 09:14",
        "now_words": "now, 14:48",
        "safe_words": "15 Oct, 07:14",
        "end_words": "09:14",
    },
    "entries": [
        {
            "at": NOW - timedelta(days=1, minutes=12),
            "tone": "rest",
            "icon_name": "robot",
            "title": "Created by invoice-reminder",
            "text": "Version 1",
            "seal": FIRST,
            "old": True,
        },
        {
            "at": NOW - timedelta(minutes=9),
            "tone": "move",
            "icon_name": "ok",
            "title": "Approved",
            "text": "approver@example.com",
            "seal": SECOND,
        },
        {
            "at": NOW - timedelta(minutes=8, milliseconds=420),
            "tone": "unsure",
            "icon_name": "unsure",
            "title": "Attempt 1: no answer",
            "text": "All 2,318 bytes were sent. Nothing came back in 30 s.",
            "wire": "connected 0.04 s · TLS 0.09 s · request sent 0.11 s · read timeout 30.00 s",
            "fine": True,
        },
    ],
    "cells": ["move"] * 22 + ["wait"] * 11 + ["unsure"] * 7 + [""] * 20,
}
