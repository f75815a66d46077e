"""What a file is by its first bytes, and what a reader should know before passing it on."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from sends.rules.payloads import Attachment

HEAD = 16  # so many bytes tell
PROGRAM = "program"
SIGNATURES = (
    (re.compile(rb"%PDF-"), "PDF"),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "PNG"),
    (re.compile(rb"\xff\xd8\xff"), "JPEG"),
    (re.compile(rb"GIF8[79]a"), "GIF"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "WebP"),
    (re.compile(rb"PK(?:\x03\x04|\x05\x06)"), "ZIP"),
    (re.compile(rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), "OLE"),
    (re.compile(rb"\x1f\x8b"), "gzip"),
    (re.compile(rb"Rar!\x1a\x07"), "RAR"),
    (re.compile(rb"7z\xbc\xaf\x27\x1c"), "7z"),
    # Windows, Linux, macOS in its three kinds, and whatever says by which program it is run.
    (
        re.compile(
            rb"MZ|\x7fELF|\xfe\xed\xfa[\xce\xcf]|[\xce\xcf]\xfa\xed\xfe|\xca\xfe\xba\xbe|#!"
        ),
        PROGRAM,
    ),
)
# What browsers show as a picture and nothing else: no script can hide in it.
PICTURES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WebP": "image/webp"}

OF_ENDINGS = {
    "pdf": "PDF",
    "png": "PNG",
    "jpg": "JPEG",
    "jpeg": "JPEG",
    "gif": "GIF",
    "webp": "WebP",
    **dict.fromkeys(("zip", "docx", "xlsx", "pptx", "odt", "ods", "odp", "epub"), "ZIP"),
    **dict.fromkeys(("doc", "xls", "ppt", "msg"), "OLE"),
    "gz": "gzip",
    "tgz": "gzip",
    "rar": "RAR",
    "7z": "7z",
    **dict.fromkeys(("txt", "csv", "md", "ics", "vcf", "json", "xml"), "text"),
}
OF_TYPES = {
    "application/pdf": "PDF",
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/gif": "GIF",
    "image/webp": "WebP",
    "application/zip": "ZIP",
    "application/msword": "OLE",
    "application/vnd.ms-excel": "OLE",
    "application/vnd.ms-powerpoint": "OLE",
    "application/gzip": "gzip",
    "text/plain": "text",
    "text/csv": "text",
    "text/calendar": "text",
    "application/json": "text",
}
OFFICE = re.compile(r"application/vnd\.(?:openxmlformats-officedocument|oasis\.opendocument)\..+")
# What does something when it is opened.
RUNS = frozenset(
    {
        *("exe", "com", "scr", "pif", "bat", "cmd", "msi", "msp", "msix", "cpl", "dll", "xll"),
        *("app", "command", "sh", "bash", "deb", "rpm", "pkg", "apk"),
        *("jar", "js", "jse", "mjs", "vbs", "vbe", "wsf", "wsh", "hta", "ps1", "psm1", "chm"),
        *("py", "rb", "pl", "php"),
        *("lnk", "url", "reg", "one"),
        *("iso", "img", "dmg", "vhd", "vhdx"),  # disks, and what is on them
        *("html", "htm", "xhtml", "shtml", "svg"),  # pages, and the scripts in them
        *("docm", "dotm", "xlsm", "xltm", "pptm", "potm"),  # macros
    }
)


class Oddity(NamedTuple):
    """Something about a file that a reader should know: what it is or does, and a sentence."""

    what: str
    text: str


def kind_of(head: bytes) -> str:
    """What the first bytes say it is, in a word; "" where they say nothing."""
    return next((kind for pattern, kind in SIGNATURES if pattern.match(head)), "")


def oddities_of(attachment: Attachment, head: bytes) -> Iterator[Oddity]:
    """What is odd about an attachment that begins with `head`."""
    name, real = attachment.filename, kind_of(head)
    *earlier, ending = [part.strip().lower() for part in name.split(".")]
    if earlier and ending in RUNS:
        if any(part in OF_ENDINGS for part in earlier[1:]):
            text = f"{name} ends in .{ending}, whatever stands before it."
            yield Oddity("hides what it is", text)
        else:
            text = f"{name} may run something when it is opened."
            yield Oddity("can run", text)
    elif real == PROGRAM:
        yield Oddity("is a program", f"{name} can be run, whatever it is called.")
    claims = {"name": OF_ENDINGS.get(ending) if earlier else None, "type": _of_type(attachment)}
    for said, claim in claims.items():
        if claim and attachment.size and not _agrees(claim, real):
            text = f"The {said} of {name} says {claim}; by its bytes it is {_in_words(real)}."
            yield Oddity("is not what it says", text)
            break
    if not attachment.size:
        yield Oddity("is empty", f"{name} has no bytes.")


def _of_type(attachment: Attachment) -> str | None:
    media_type = attachment.content_type.partition(";")[0].lower()
    return "ZIP" if OFFICE.fullmatch(media_type) else OF_TYPES.get(media_type)


def _agrees(claim: str, real: str) -> bool:
    # A script may well be sent as a text.
    return real in ("", PROGRAM) if claim == "text" else real == claim


def _in_words(kind: str) -> str:
    return {"": "something else", PROGRAM: "a program"}.get(kind, kind)
