"""Bytes of an email as the text that they are: read exactly, or not at all."""

import codecs

# Labels that mail has and Python does not. An unknown one stands for none, which is ASCII.
LABELS = {
    **dict.fromkeys(("", "unknown-8bit", "x-unknown", "unknown"), "ascii"),
    **dict.fromkeys(("iso-8859-8-i", "iso-8859-8-e"), "iso8859-8"),
    "x-sjis": "shift_jis",
    "x-gbk": "gbk",
    "windows-874": "cp874",
    "x-mac-roman": "macroman",
}
# Python has these, mail does not.
NOT_IN_MAIL = {"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"}
# Where the bytes are not what their label says, they are read by the set that includes it, as
# every reader does: https://encoding.spec.whatwg.org/#names-and-labels
WIDER = {
    "ascii": "utf-8",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
    "big5": "big5hkscs",
}
C1_CONTROLS = bytes(range(0x80, 0xA0))  # no text in Latin 1, quotation marks in Windows 1252


class NotText(ValueError):
    """Why the bytes are no text. Nothing was guessed, and nothing replaced."""


def read_text(raw: bytes, charset: str) -> str:
    """The text, or NotText: the charset is unknown, or the bytes are not of it."""
    name = _known(charset)
    for candidate in (name, WIDER.get(name, name)):
        if candidate == "iso8859-1" and raw.translate(None, C1_CONTROLS) != raw:
            continue
        try:
            return raw.decode(candidate)
        except LookupError:
            raise NotText(f"is in {charset[:40]!a}, which is no charset") from None
        except UnicodeError:
            continue
    raise NotText(f"is labelled as {charset[:40] or 'ASCII'!a}, and its bytes are not that")


def _known(charset: str) -> str:
    label = charset.strip(" \t'\"").lower()
    try:
        name = codecs.lookup(LABELS.get(label, label)).name
    except (LookupError, ValueError):
        name = ""
    if not name or name in NOT_IN_MAIL:
        raise NotText(f"is in the charset {label[:40]!a}, which is not known here")
    return name
