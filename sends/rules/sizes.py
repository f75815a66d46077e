"""How large an email becomes when it is encoded: what accounts limit, known before it is sent."""

from sends.rules.payloads import Message

LINE = 76  # of base64 (RFC 2045, 6.8), before its line end
HEAD = 1024  # what we and a provider add by ourselves: Date, Message-ID, Received, DKIM …
PART = 256  # a part's boundary and fields, besides the names in them
FOLDED = 5  # bytes to which one of a name or a header may grow: encoded, cut up and folded


def encoded_bytes(message: Message) -> int:
    """At most so many bytes the email has as MIME, a little above what it really has.

    Every part counts as base64, whose share an attachment of any size has.
    """
    bodies = [body for body in (message.text, message.html) if body is not None]
    sizes = [len(body.encode()) + body.count("\n") for body in bodies]  # LF is sent as CR LF
    sizes += [one.size for one in message.attachments]
    names = sum(len(text.encode()) for text in _names(message))
    return HEAD + names * FOLDED + sum(PART + _base64(size) for size in sizes)


def _base64(size: int) -> int:
    encoded = (size + 2) // 3 * 4
    return encoded + (encoded + LINE - 1) // LINE * 2


def _names(message: Message) -> list[str]:
    """All that is written into the heads of the message and of its parts."""
    boxes = (message.sender, *message.to, *message.cc, *message.reply_to)
    return [
        *(f"{box.name}<{box.address}>, " for box in boxes),
        *(f"{name}: {value}" for name, value in message.headers),
        message.subject,
        message.in_reply_to,
        *message.references,
        # The name stands twice, in Content-Type and in Content-Disposition.
        *(f"{one.filename * 2}{one.content_type}{one.content_id}" for one in message.attachments),
    ]
