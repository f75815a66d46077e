"""The errors with which lifecycle says no to a person or an agent, each with its words.

Refused
 ├─ NotAllowed        the role, the tenant or the authorship forbids it
 ├─ Invalid           a reason or note that is missing, or not as it must be
 ├─ AlreadyDecided    somebody else was first, or it ended meanwhile
 ├─ VersionChanged    another version is current, or another digest was seen
 ├─ DigestDiffers     the stored bytes are not what the digest says: an anomaly
 ├─ Suppressed        a recipient must not be sent to
 ├─ OtherVersionActive  another version of the action may be sent now
 ├─ InFlight          a worker is talking to the provider right now
 ├─ InDoubt           it may have been accepted, and nothing has settled that
 ├─ AlreadyAccepted   a provider took it: a follow-up is what is left
 ├─ TooLate           the moment in which this was possible is over
 ├─ RunEnded          its run was ended
 └─ NotPossible       its status offers no such thing
"""

from datetime import datetime
from typing import ClassVar


class Refused(Exception):
    """Nothing was decided. `words` say to a person what happened and what can be done instead.

    `code` is stable, for programs. `who` (an email address, "agent:<slug>" or "system") and `at`
    say whose doing it was, where it was somebody's. `offer` names what can be done instead:
    "edit", "follow_up", "resend", "approve", "settle" or nothing.
    """

    code: ClassVar[str] = "refused"

    def __init__(
        self, words: str, *, who: str = "", at: datetime | None = None, offer: str = ""
    ) -> None:
        super().__init__(words)
        self.words = words
        self.who = who
        self.at = at
        self.offer = offer


class NotAllowed(Refused):
    code = "not_allowed"


class Invalid(Refused):
    code = "invalid"


class AlreadyDecided(Refused):
    code = "already_decided"


class VersionChanged(Refused):
    code = "version_changed"


class DigestDiffers(Refused):
    code = "digest_differs"


class Suppressed(Refused):
    code = "suppressed"


class OtherVersionActive(Refused):
    code = "other_version_active"


class InFlight(Refused):
    code = "in_flight"


class InDoubt(Refused):
    code = "in_doubt"


class AlreadyAccepted(Refused):
    code = "already_accepted"


class TooLate(Refused):
    code = "too_late"


class RunEnded(Refused):
    code = "run_ended"


class NotPossible(Refused):
    code = "not_possible"
