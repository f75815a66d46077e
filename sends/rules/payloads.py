"""A message frozen: its canonical form, and the digests that stand for it."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from sends.rules.keys import canonical, sha256

FORMAT = 1


@dataclass(frozen=True)
class Mailbox:
    """An address exactly as given, and the display name beside it."""

    address: str
    name: str = ""


@dataclass(frozen=True)
class Attachment:
    """A file as the email names it. Its bytes are kept apart, under their SHA-256."""

    filename: str
    content_type: str
    size: int
    sha256: str
    content_id: str = ""
    inline: bool = False


@dataclass(frozen=True)
class Message:
    """What the caller chose of an email. `None` is a part that is not there; "" is an empty one."""

    sender: Mailbox
    to: tuple[Mailbox, ...]
    cc: tuple[Mailbox, ...] = ()
    bcc: tuple[Mailbox, ...] = ()
    reply_to: tuple[Mailbox, ...] = ()
    subject: str = ""
    text: str | None = None
    html: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    in_reply_to: str = ""
    references: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()

    @property
    def recipients(self) -> tuple[Mailbox, ...]:
        """Everybody who is sent it: To, Cc and Bcc, in this order."""
        return self.to + self.cc + self.bcc


@dataclass(frozen=True)
class Frozen:
    """A message with the identity that every attempt of its intent carries."""

    message: Message
    message_id: str
    idempotency_key: str


def content_digest(message: Message) -> str:
    """Tells a replay (the same) from a reuse (another) of an action key.

    The sender's display name is not in it: that is the installation's choice, not the caller's.
    """
    return sha256(canonical(asdict(message) | {"sender": message.sender.address}))


def freeze(frozen: Frozen) -> bytes:
    """The bytes that are stored, approved and sent. `seal` is their digest."""
    return canonical({"format": FORMAT, **asdict(frozen)})


def seal(body: bytes) -> str:
    """The digest that a person approves, and that is checked again before dispatch."""
    return sha256(body)


def thaw(body: bytes) -> Frozen:
    """The message that `freeze` wrote down."""
    stored: dict[str, Any] = json.loads(body)
    fields = dict(stored["message"])
    for name in ("to", "cc", "bcc", "reply_to"):
        fields[name] = tuple(Mailbox(**mailbox) for mailbox in fields[name])
    fields["sender"] = Mailbox(**fields["sender"])
    fields["headers"] = tuple((name, value) for name, value in fields["headers"])
    fields["references"] = tuple(fields["references"])
    fields["attachments"] = tuple(Attachment(**one) for one in fields["attachments"])
    return Frozen(Message(**fields), stored["message_id"], stored["idempotency_key"])
