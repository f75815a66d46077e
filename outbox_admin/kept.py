"""The secrets that an installation on its own machine makes for itself, once."""

import os
import secrets
from pathlib import Path


def kept_secret(folder: Path, name: str) -> str:
    """The secret kept as `name` in `folder`, made there on first use, for its owner's eyes only."""
    path = folder / name
    if not path.exists():
        _make(path)
    return path.read_text(encoding="ascii").strip()


def _make(path: Path) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(secrets.token_urlsafe(50), encoding="ascii")
    # A link appears whole or not at all: of two processes that start at once one makes the
    # secret, and the other reads that one, never half of it.
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
