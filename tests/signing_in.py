"""Signed in within a test, without the way through the page, and for longer than one is."""

import time

from allauth.account.authentication import AUTHENTICATION_METHODS_SESSION_KEY
from django.test import Client

from sends.models import Person


def sign_in(client: Client, person: Person) -> Client:
    """The client, signed in as this person just now with a password."""
    client.force_login(person)
    session = client.session
    session[AUTHENTICATION_METHODS_SESSION_KEY] = [{"method": "password", "at": time.time()}]
    session["account_authentication_methods_user"] = str(person.pk)
    session.save()
    return client


def sixteen_minutes_later(client: Client) -> None:
    """What was shown of the person in this session is older than counts."""
    session = client.session
    for shown in session[AUTHENTICATION_METHODS_SESSION_KEY]:
        shown["at"] -= 16 * 60
    session.save()
