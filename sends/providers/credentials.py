"""References to secrets ("env:NAME", "file:PATH"), and the secrets behind them."""

import os
from pathlib import Path

from sends.providers.adapter import CredentialError

__all__ = ["CredentialError", "resolve"]

LONGEST = 64 * 1024


def resolve(reference: str) -> str:
    """The secret behind a reference. No message names its value."""
    kind, colon, place = reference.partition(":")
    if not colon or not place or kind not in ("env", "file"):
        # What stands here may be the secret itself, pasted where its reference belongs.
        raise CredentialError("the credential is not a reference; give env:NAME or file:PATH")
    secret = _from_environment(place) if kind == "env" else _from_file(Path(place))
    if not secret.strip():
        raise CredentialError(f"{reference} is empty; put the secret there")
    if not secret.isprintable():
        raise CredentialError(
            f"{reference} holds a line break or another control character; give the secret alone"
        )
    return secret


def _from_environment(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise CredentialError(
            f"the variable {name} is not set; set it for web and worker"
        ) from None


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST + 1)
        if len(content) > LONGEST:
            raise CredentialError(f"{path} is too long for a secret")
        return content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as failure:
        raise CredentialError(f"{path} cannot be read: {failure.strerror}") from failure
    except UnicodeDecodeError:
        raise CredentialError(f"{path} is not a text file in UTF-8") from None
