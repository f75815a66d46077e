"""Mail to the people who sign in: an invitation, and a link to a new password."""

from allauth.account.utils import user_pk_to_url_str
from django.contrib.auth.tokens import default_token_generator
from django.core.mail import send_mail
from django.urls import get_script_prefix, reverse

from sends.conf import conf
from sends.models import Invitation, Person

INVITATION = """\
{inviter} invites you to {tenant} in Outbox Admin, as {role}.

Accept within 7 days:
{link}

If you do not know what this is about, do nothing: the link then ends by itself.
"""
RESET = """\
Somebody asked for a new password for {email} in Outbox Admin.

Set it within a day:
{link}

If that was not you, do nothing: your password holds.
"""


def invitation_link(token: str) -> str:
    return link_to("accept_invitation", token=token)


def reset_link(person: Person) -> str:
    """Good for one day, and until the password is set or the person signs in."""
    return link_to(
        "account_reset_password_from_key",
        uidb36=user_pk_to_url_str(person),
        key=default_token_generator.make_token(person),
    )


def mail_invitation(invitation: Invitation, link: str) -> None:
    """Raises OSError (of which SMTP's errors are) where no mail server took it."""
    words = INVITATION.format(
        inviter=invitation.invited_by,
        tenant=invitation.tenant,
        role=invitation.get_role_display().lower(),
        link=link,
    )
    send_mail("You are invited to Outbox Admin", words, None, [invitation.email])


def mail_reset(email: str) -> None:
    """Nothing for an address that nobody signs in with by password."""
    person = Person.objects.at(email)
    if person is None or not person.is_active:
        return
    if not person.has_usable_password() or not person.may_use_password():
        return
    words = RESET.format(email=person.email, link=reset_link(person))
    send_mail("A new password for Outbox Admin", words, None, [person.email])


def link_to(name: str, **values: str) -> str:
    """Without the tenant that may stand before the addresses of who asks for it."""
    return f"{conf.url}/{reverse(name, kwargs=values).removeprefix(get_script_prefix())}"
