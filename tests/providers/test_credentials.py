"""References lead to secrets, and no message gives one away."""

from pathlib import Path

import pytest

from sends.providers.credentials import CredentialError, resolve


def test_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "secret:with:colons")
    assert resolve("env:TEST_KEY") == "secret:with:colons"


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_file_without_the_line_break_at_its_end(tmp_path: Path, ending: str) -> None:
    (tmp_path / "key").write_bytes(f" s3cret {ending}".encode())
    assert resolve(f"file:{tmp_path / 'key'}") == " s3cret "


@pytest.mark.parametrize("reference", ["", "s3cret", "env:", "file:", "vault:s3cret", ":s3cret"])
def test_what_is_no_reference_is_refused_without_repeating_it(reference: str) -> None:
    with pytest.raises(CredentialError, match="env:NAME or file:PATH") as caught:
        resolve(reference)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"  ", "empty"),
        (b"s3cret\nsecond line", "control character"),
        (b"s3cret\x00", "control character"),
        (b"s3cret\xff", "UTF-8"),
        (b"s3cret" * 20_000, "too long"),
    ],
)
def test_a_file_that_holds_no_secret_is_named(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(CredentialError, match=word) as caught:
        resolve(f"file:{path}")
    assert str(path) in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialError, match="NO_SUCH_KEY is not set"):
        resolve("env:NO_SUCH_KEY")
    with pytest.raises(CredentialError, match="cannot be read: No such file"):
        resolve(f"file:{tmp_path / 'none'}")
    with pytest.raises(CredentialError, match="cannot be read: Is a directory"):
        resolve(f"file:{tmp_path}")
