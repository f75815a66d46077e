"""What this data folder remembers of its database: an older copy in its place knows less."""

import json
import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import UUID

from sends.conf import conf

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Memory:
    """Which installation used this folder, and how many beats its database had counted."""

    installation: UUID
    beats: int


def recall() -> Memory | None:
    try:
        known = json.loads(_path().read_text(encoding="utf-8"))
        return Memory(UUID(known["installation"]), int(known["beats"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        logger.warning("data folder has forgotten its database", extra={"file": str(_path())})
        return None


def remember(memory: Memory) -> None:
    """Whole or not at all. Of two that write at once one wins, and both wrote what was true."""
    draft = _path().with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    known = {"installation": str(memory.installation), "beats": memory.beats}
    draft.write_text(json.dumps(known), encoding="utf-8")
    draft.replace(_path())


def open_slot(number: int) -> IO[str]:
    """The file of one of the drains of this machine: its lock, and the last attempt it opened."""
    path = conf.data_dir / f"drain-{number}.lock"
    path.touch()
    return path.open("r+", encoding="ascii")


def note_attempt(slot: IO[str], attempt_id: UUID) -> None:
    """Remember this attempt, which is in the database, before anything of it leaves."""
    os.pwrite(slot.fileno(), attempt_id.hex.encode(), 0)


def last_attempts() -> list[UUID]:
    """The last attempt that each drain of this machine has opened."""
    found = []
    for path in conf.data_dir.glob("drain-*.lock"):
        try:
            found.append(UUID(path.read_text(encoding="ascii")))
        except ValueError:  # none yet
            continue
    return found


def _path() -> Path:
    return conf.data_dir / "installation.json"
