"""What a provider promises about a repeated key, as data with its source and date."""

from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from enum import StrEnum

# A documented replay without documented retention: assume little, and say that it is assumed.
ASSUMED_WINDOW = timedelta(minutes=15)
# Where nobody documented what happens to two requests at once.
UNKNOWN_SETTLE_TIME = timedelta(seconds=60)
MAX_MARGIN = timedelta(hours=2)


class Recovery(StrEnum):
    """What may follow an attempt whose outcome is not known."""

    REPLAY = "replay"
    ONE_SHOT = "one_shot"
    LOOK_UP = "look_up"
    PERSON = "person"


@dataclass(frozen=True)
class Contract:
    """The facts that an adapter verified. An unspecified fact is the unsafe one.

    Words (`key_carrier`, `same_key_other_request`, ...) are shown beside an uncertain outcome;
    None means "not documented". `took_nothing` are the HTTP statuses for which the provider says
    that nothing was taken. `request_deadline` bounds one request and is the least margin.
    """

    recovery: Recovery
    source: str
    checked_on: date
    window: timedelta | None = None
    window_from: str | None = None
    settle_time: timedelta = UNKNOWN_SETTLE_TIME
    took_nothing: frozenset[int] = frozenset()
    scope: str | None = None
    key_carrier: str | None = None
    key_format: str | None = None
    same_key_same_request: str | None = None
    same_key_other_request: str | None = None
    two_at_once: str | None = None
    replay_mark: str | None = None
    failures_remembered: bool | None = None
    tag_carrier: str | None = None
    tag_echoed: bool = False
    has_look_up: bool = False
    message_id_kept: bool | None = None
    endpoints: tuple[str, ...] = ()
    max_recipients: int | None = None  # in To, Cc and Bcc
    needs_to: bool = True  # refuses a message that has nobody in To
    max_bytes: int | None = None  # of a whole message, encoded
    takes_attachments: bool = False
    takes_inline: bool = False  # attachments that the HTML shows by their Content-ID
    request_deadline: timedelta = timedelta(seconds=20)

    @property
    def may_replay(self) -> bool:
        """Whether the same request under the same key may be repeated without a person."""
        return self.recovery is Recovery.REPLAY

    @property
    def window_is_assumed(self) -> bool:
        return self.may_replay and self.window is None

    @property
    def safe_window(self) -> timedelta:
        """How long after the first request a repeat is recognised; zero without a contract."""
        if not self.may_replay:
            return timedelta()
        return self.window if self.window is not None else ASSUMED_WINDOW

    @property
    def margin(self) -> timedelta:
        """How long before the window's end replays stop: clocks differ and requests take time."""
        return max(min(MAX_MARGIN, self.safe_window / 10), self.request_deadline)

    def window_ends(self, opened_at: datetime) -> datetime:
        return opened_at + self.safe_window

    def replay_until(self, opened_at: datetime) -> datetime:
        """The last moment at which a replay may begin; not after `opened_at` without a contract."""
        return max(opened_at, self.window_ends(opened_at) - self.margin)

    def tightened(self, *, window: timedelta | None = None, no_replay: bool = False) -> "Contract":
        """This contract made stricter by an operator. It never becomes looser."""
        tight = self
        if window is not None and window < self.safe_window:
            tight = replace(tight, window=window)
        if no_replay and self.recovery in (Recovery.REPLAY, Recovery.ONE_SHOT):
            by_hand = Recovery.LOOK_UP if self.has_look_up else Recovery.PERSON
            tight = replace(tight, recovery=by_hand)
        return tight
