"""Signed in within a test, without the way through the page."""

import time

from allauth.account.authentication import AUTHENTICATION_METHODS_SESSION_KEY
from django.test import Client

from sends.models import Person


def sign_in(client: Client, person: Person, *, ago_seconds: float = 0) -> Client:
    """The client, signed in as this person with a password so long ago."""
    client.force_login(person)
    session = client.session
    session[AUTHENTICATION_METHODS_SESSION_KEY] = [
        {"method": "password", "at": time.time() - ago_seconds}
    ]
    session["account_authentication_methods_user"] = str(person.pk)
    session.save()
    return client
