"""How much one email may hold: an installation sets each of these, within what email can carry."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The settings OUTBOX_MAX_…, with their defaults. Lengths are characters, sizes bytes."""

    recipients: int = 50  # in To, Cc and Bcc together
    subject: int = 998
    body: int = 1_000_000  # each of text and html
    headers: int = 50  # how many
    header: int = 998  # each value
    metadata: int = 16_384  # as JSON
    attachments: int = 50  # how many
    message: int = 25_000_000  # all of it, encoded as for the wire; an account may take less
    request: int = 40_000_000  # of a program, with one message in it


DEFAULTS = Limits()
