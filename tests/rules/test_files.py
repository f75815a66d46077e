"""What a file is, whatever it is called."""

import pytest

from sends.rules.files import kind_of, oddities_of
from sends.rules.payloads import Attachment

PDF, PNG, ZIP, OLE = (
    b"%PDF-1.7",
    b"\x89PNG\r\n\x1a\n",
    b"PK\x03\x04",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
)
EXE, SCRIPT = b"MZ\x90\x00", b"#!/bin/sh\n"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (PDF, "PDF"),
        (PNG, "PNG"),
        (b"\xff\xd8\xff\xe0", "JPEG"),
        (b"GIF89a", "GIF"),
        (b"RIFF\x00\n\xff\x01WEBPVP8 ", "WebP"),
        (b"RIFF\x00\n\xff\x01WAVEfmt ", ""),
        (ZIP, "ZIP"),
        (OLE, "OLE"),
        (EXE, "program"),
        (b"\x7fELF\x02", "program"),
        (SCRIPT, "program"),
        (b"", ""),
        (b" %PDF-1.7", ""),
        (b"name,price\n", ""),
    ],
)
def test_the_first_bytes_tell(head: bytes, kind: str) -> None:
    assert kind_of(head) == kind


@pytest.mark.parametrize(
    ("name", "content_type", "head"),
    [
        ("receipt.pdf", "application/pdf", PDF),
        ("RECEIPT.PDF", "Application/PDF", PDF),
        ("receipt", "application/octet-stream", PDF),
        ("q3.report.2026.pdf", "application/octet-stream", PDF),
        ("list.csv", "text/csv; charset=utf-8", b"name,price"),
        ("list.txt", "text/plain", SCRIPT[:1] + b" a list"),
        (
            "offer.docx",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            ZIP,
        ),
        ("old.doc", "application/msword", OLE),
        ("photo.jpeg", "image/jpeg", b"\xff\xd8\xff\xe0"),
        ("data.bin", "application/x-ours", b"\x00\x01"),
        ("com", "text/plain", b"a name without an ending"),
    ],
)
def test_nothing_is_odd_about_what_is_as_it_says(name: str, content_type: str, head: bytes) -> None:
    assert oddities(name, content_type, head) == []


@pytest.mark.parametrize(
    ("name", "content_type", "head", "expected"),
    [
        ("setup.exe", "application/octet-stream", EXE, ["can run"]),
        ("page.html", "text/html", b"<p>", ["can run"]),
        ("macro.xlsm", "application/octet-stream", ZIP, ["can run"]),
        ("invoice.pdf.exe", "application/octet-stream", EXE, ["hides what it is"]),
        ("invoice.pdf            .scr", "application/octet-stream", EXE, ["hides what it is"]),
        ("tool", "application/octet-stream", EXE, ["is a program"]),
        ("invoice.pdf", "application/pdf", EXE, ["is a program", "is not what it says"]),
        ("invoice.pdf", "application/octet-stream", PNG, ["is not what it says"]),
        ("invoice", "application/pdf", b"hello", ["is not what it says"]),
        ("logo.png", "image/jpeg", PNG, ["is not what it says"]),
        ("notes.txt", "text/plain", ZIP, ["is not what it says"]),
        ("empty.pdf", "application/pdf", b"", ["is empty"]),
    ],
)
def test_what_a_reader_should_know(
    name: str, content_type: str, head: bytes, expected: list[str]
) -> None:
    assert oddities(name, content_type, head) == expected


def oddities(name: str, content_type: str, head: bytes) -> list[str]:
    attachment = Attachment(name, content_type, len(head), "0" * 64)
    return [oddity.what for oddity in oddities_of(attachment, head)]
