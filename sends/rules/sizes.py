"""How large an email becomes when it is encoded: what accounts limit, before anything is sent."""

from sends.rules.payloads import Attachment, Mailbox, Message

LINE = 76  # of base64 (RFC 2045, 6.8), before its line end
HEAD = 1024  # what we and a provider add by ourselves: Date, Message-ID, Received, DKIM …
PART = 256  # a part's boundary and its fields, besides the names in them


def encoded_bytes(message: Message) -> int:
    """At most so many bytes the email has as MIME, envelope and signatures aside.

    Every part counts as base64, and every text as percent signs or encoded words would make it.
    Providers whose requests are JSON count in the same way, or less strictly.
    """
    texts = [body.encode("utf-8") for body in (message.text, message.html) if body is not None]
    return (
        HEAD
        + _heads(message)
        + sum(PART + base64_bytes(len(body)) for body in texts)
        + sum(_attached(one) for one in message.attachments)
    )


def base64_bytes(size: int) -> int:
    """So many bytes in base64, its lines ended by CR LF."""
    encoded = (size + 2) // 3 * 4
    return encoded + (encoded + LINE - 1) // LINE * 2


def _heads(message: Message) -> int:
    boxes = (message.sender, *message.to, *message.cc, *message.reply_to)
    fields = [("Subject", message.subject), *message.headers]
    fields += [("In-Reply-To", message.in_reply_to), ("References", " ".join(message.references))]
    return sum(map(_mailbox, boxes)) + sum(len(name) + _line(value) for name, value in fields)


def _mailbox(box: Mailbox) -> int:
    return _line(box.name) + _line(box.address)


def _attached(attachment: Attachment) -> int:
    # The name stands twice, in Content-Type and in Content-Disposition.
    named = 2 * _line(attachment.filename) + _line(attachment.content_type)
    return PART + named + _line(attachment.content_id) + base64_bytes(attachment.size)


def _line(*values: str) -> int:
    """Each byte as three (RFC 2231), folded."""
    return sum(4 + (3 if not value.isascii() else 1) * len(value.encode()) for value in values)
