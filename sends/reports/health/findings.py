"""What a finding is."""

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How bad it is."""

    WARNING = 1
    UNSAFE = 2


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: what, and what to do about it. `check` is its name for programs."""

    check: str
    level: Level
    what: str
    cure: str


def warning(check: str, what: str, cure: str) -> Finding:
    return Finding(check, Level.WARNING, what, cure)


def unsafe(check: str, what: str, cure: str) -> Finding:
    """Promises may be broken, or nothing works, until it is cured."""
    return Finding(check, Level.UNSAFE, what, cure)
