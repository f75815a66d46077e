"""The size that is reckoned is never less than what goes on the wire, and not much more."""

from dataclasses import replace

from hypothesis import given, settings

from sends.rules.payloads import Attachment, Message
from sends.rules.sizes import encoded_bytes
from tests.rules.test_mime import CONTENTS, LEAST, MESSAGES, built


@settings(max_examples=200)
@given(MESSAGES)
def test_no_email_becomes_larger_than_was_reckoned(message: Message) -> None:
    assert len(built(message)) <= encoded_bytes(message)


def test_line_ends_and_odd_names_are_reckoned_with() -> None:
    name = "請" * 255
    file = Attachment(name, "text/plain", 1000, next(iter(CONTENTS)), content_id="x" * 255)
    for message in (
        replace(LEAST, text="\n" * 10_000, html="ü\n" * 10_000),
        replace(LEAST, subject="=?" * 499, headers=(("X-Order", "é" * 998),) * 50),
        replace(LEAST, attachments=(replace(file, size=0),) * 50),
    ):
        assert len(built(message)) <= encoded_bytes(message)


def test_a_large_file_grows_by_little_more_than_a_third() -> None:
    file = Attachment("a.bin", "application/octet-stream", 10_000_000, "0" * 64)
    size = encoded_bytes(replace(LEAST, attachments=(file,)))
    assert 13_684_000 < size < 13_690_000
