"""What every provider offers: the seam between the outbox and its adapters."""

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, ClassVar
from uuid import UUID

from sends.providers.http import Answer, Http, clock, why_unsafe
from sends.rules.backoff import parse_retry_after
from sends.rules.contracts import Contract
from sends.rules.deliveries import EventKind
from sends.rules.keys import canonical, sha256
from sends.rules.outcomes import Happened, Outcome
from sends.rules.payloads import Frozen

logger = logging.getLogger(__name__)

KEPT_BYTES = 4 * 1024
LONGEST_ID = 255
LONGEST_CODE = 120
HIDDEN = "[hidden]"
WEBHOOK_TOLERANCE = timedelta(seconds=300)


class ProviderError(Exception):
    """The root of all that an adapter raises. Trouble of the network is never an exception.

    ProviderError
    ├── UnknownProvider   no adapter has this name
    ├── BadOptions        the account's or sender's options, URL or credential cannot work
    │   └── CredentialError  the reference does not lead to a secret
    ├── NotSupported      the provider's API cannot express this; nothing was sent
    └── BadSignature      a webhook that its provider did not sign, or not now
    """


class UnknownProvider(ProviderError):
    pass


class BadOptions(ProviderError):
    pass


class CredentialError(BadOptions):
    pass


class NotSupported(ProviderError):
    pass


class BadSignature(ProviderError):
    pass


@dataclass(frozen=True)
class AccountFacts:
    """An account with its references resolved. Its secrets are in no repr."""

    provider: str
    base_url: str
    credential: str = field(repr=False)
    scope: UUID
    connect_timeout: timedelta = timedelta(seconds=5)
    request_deadline: timedelta = timedelta(seconds=20)
    options: Mapping[str, Any] = field(default_factory=dict)
    webhook_secrets: tuple[str, ...] = field(default=(), repr=False)
    replay_window: timedelta | None = None
    no_replay: bool = False


@dataclass(frozen=True)
class SenderFacts:
    address: str
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Submission:
    """One intent as an adapter gets it. `tag` is our delivery tag, the intent's id in hex.

    `contents` are the bytes of the message's attachments by their SHA-256, checked against it.
    """

    frozen: Frozen
    sender: SenderFacts
    tag: str
    wire_key: str
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Request:
    """What goes on the wire, but for the credential. The same intent, the same bytes, for ever.

    `digest` is over method, URL, headers and body; the first dispatch of an intent fixes it for
    every replay. `tag` is what an answer must name to be about this request.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    tag: str

    @cached_property
    def digest(self) -> str:
        named = sorted((name.lower(), value) for name, value in self.headers.items())
        return sha256(canonical([self.method, self.url, named, sha256(self.body)]))


@dataclass(frozen=True)
class Event:
    """One provider event in our words.

    `event_id` is the provider's, "" when it gave none. Two events with one `fingerprint` tell of
    the same happening, whatever their ids. What a provider left out is "" or None.
    """

    event_id: str
    kind: EventKind
    recipient: str
    provider_message_id: str
    tag: str
    message_id: str
    reason: str
    occurred_at: datetime | None
    fingerprint: str


@dataclass(frozen=True)
class Found:
    """A message that the provider says it took."""

    provider_message_id: str
    tag: str = ""
    message_id: str = ""
    accepted_at: datetime | None = None


@dataclass(frozen=True)
class LookUp:
    """What the provider knows about a message. Only `proves` is proof, and never of absence.

    `by` and `value` are what was asked for. `error` says why there is no answer, "" when there
    is one. `proves` is the one hit that carries what was asked for, None if there is none, or
    more than one.
    """

    by: str
    value: str
    found: tuple[Found, ...] = ()
    error: str = ""

    @property
    def proves(self) -> Found | None:
        return self.found[0] if len(self.found) == 1 else None

    @property
    def summary(self) -> str:
        asked = f"asked for {self.by} {self.value}"
        if self.error:
            return f"{asked}: no usable answer ({self.error})"
        return f"{asked}: {len(self.found) or 'no'} message{'s' * (len(self.found) != 1)} found"


class Adapter(ABC):
    """One provider. The base runs each sequence, an adapter fills in the steps.

    An adapter keeps no state: one instance serves every account from every thread.
    """

    name: ClassVar[str]

    @abstractmethod
    def contract(self, options: Mapping[str, Any]) -> Contract:
        """What the provider promises to an account with these options, as data."""

    def contract_for(self, account: AccountFacts) -> Contract:
        """The contract that holds for this account: made stricter where its operators say so."""
        contract = replace(
            self.contract(account.options), request_deadline=account.request_deadline
        )
        return contract.tightened(window=account.replay_window, no_replay=account.no_replay)

    def wire_key(self, idempotency_key: str) -> str:
        """The key in the shape that this provider takes; a pure function of ours."""
        return idempotency_key

    @abstractmethod
    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise BadOptions naming every wrong one."""

    # -- sending

    def build(self, submission: Submission, account: AccountFacts) -> Request:
        """The request of this intent, or NotSupported, or BadOptions. Touches no network."""
        if reason := why_unsafe(account.base_url):
            raise BadOptions(f"the base URL of the account: {reason}")
        method, path, headers, body = self.compose(submission, account)
        url = account.base_url.rstrip("/") + path
        return Request(method, url, headers, body, submission.tag)

    @abstractmethod
    def compose(
        self, submission: Submission, account: AccountFacts
    ) -> tuple[str, str, Mapping[str, str], bytes]:
        """Method, path, headers without the credential, body; NotSupported by name."""

    @abstractmethod
    def authorization(self, account: AccountFacts) -> Mapping[str, str]:
        """The headers that carry the credential; never part of a digest, nor kept."""

    def submit(
        self,
        request: Request,
        account: AccountFacts,
        http: Http,
        *,
        not_after: float | None = None,
    ) -> Happened:
        """One physical try, over within the account's request deadline.

        `not_after`, a moment of `http.clock`, is the last at which its first byte may leave.
        """
        answer = self._ask(
            request.method,
            request.url,
            account,
            http,
            headers=request.headers,
            body=request.body,
            not_after=not_after,
        )
        try:
            happened = self.read(answer, request)
        except Exception:
            # Whatever it was that we could not read: the provider has our request.
            logger.exception("an answer could not be read", extra={"adapter": self.name})
            happened = replace(facts_of(answer), error="unreadable", says=Outcome.AMBIGUOUS)
        return without_secrets(happened, self._secrets(account))

    @abstractmethod
    def read(self, answer: Answer, request: Request) -> Happened:
        """What the answer says, by `facts_of(answer)` and this provider's own words.

        `answer.status` may be None: then only how far it got is known. Set `proof` only where
        the answer is about this request, and `block` with every 3xx, 401, 402 and 403.
        """

    # -- asking later

    def look_up(
        self,
        account: AccountFacts,
        http: Http,
        *,
        tag: str,
        wire_key: str,
    ) -> LookUp:
        """Ask the provider for the message; NotSupported where its API has no such question."""
        raise NotSupported(f"{self.name} has no look-up by key or tag")

    # -- events

    @abstractmethod
    def verify_webhook(
        self, headers: Mapping[str, str], raw_body: bytes, secrets: Sequence[str], now: datetime
    ) -> None:
        """Raise BadSignature unless one of the secrets signed exactly these bytes, just now."""

    @abstractmethod
    def events(self, raw_body: bytes) -> list[Event]:
        """The events of a verified body. What cannot be read is an UNKNOWN one, never an error."""

    # -- what the steps share

    def _ask(
        self,
        method: str,
        url: str,
        account: AccountFacts,
        http: Http,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        not_after: float | None = None,
    ) -> Answer:
        return http.send(
            method,
            url,
            account=account.scope,
            headers={**headers, **self.authorization(account)},
            body=body,
            deadline=clock() + account.request_deadline.total_seconds(),
            not_after=not_after,
            connect_seconds=account.connect_timeout.total_seconds(),
            reuse_idle=method == "GET" or self.contract_for(account).may_replay,
        )

    def _secrets(self, account: AccountFacts) -> list[str]:
        """The credential in every form in which an answer might repeat it."""
        values = self.authorization(account).values()
        tokens = [value.partition(" ")[2] for value in values]
        return [account.credential, *values, *tokens, *account.webhook_secrets]


def facts_of(answer: Answer) -> Happened:
    """An answer as facts, without any provider's words: the start of every `read`."""
    return Happened(
        phase=answer.phase,
        error=answer.error,
        status=answer.status,
        message=answer.detail,
        retry_after=parse_retry_after(
            answer.headers.get("retry-after"), answered_at=_answered_at(answer)
        ),
        bytes_sent=answer.bytes_sent,
        bytes_total=answer.bytes_total,
        seconds=answer.seconds,
        body=answer.body.decode("utf-8", "replace"),
    )


def _answered_at(answer: Answer) -> datetime:
    try:
        moment = parsedate_to_datetime(answer.headers.get("date", ""))
    except (TypeError, ValueError, OverflowError):
        return datetime.now(UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; an empty one where there is none, or not one in strict UTF-8."""
    try:
        found = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def text(value: object, longest: int = KEPT_BYTES) -> str:
    """What a provider sent as a text, fit for the database; "" where it is no text at all.

    JSON can spell NUL and lone surrogates, and PostgreSQL takes neither.
    """
    if not isinstance(value, str):
        return ""
    kept = value.replace("\x00", "").encode("utf-8", "replace")[:longest]
    return kept.decode("utf-8", "ignore")


def identifier(value: object) -> str:
    """A provider's id, exactly; "" where it is none that could be kept and asked for again."""
    whole = text(value, LONGEST_ID)
    return whole if whole == value and whole.isprintable() else ""


def moment(value: object) -> datetime | None:
    """An ISO 8601 moment; UTC where it names no zone, None where it is none."""
    try:
        read = datetime.fromisoformat(value) if isinstance(value, str) else None
        return read.replace(tzinfo=read.tzinfo or UTC).astimezone(UTC) if read else None
    except (ValueError, OverflowError):
        return None


def without_secrets(happened: Happened, secrets: Iterable[str]) -> Happened:
    """The same, with every secret hidden and every text fit to be kept."""
    ordered = sorted({secret for secret in secrets if secret}, key=len, reverse=True)

    def kept(value: str, longest: int) -> str:
        for secret in ordered:
            value = value.replace(secret, HIDDEN)
        return text(value, longest)

    return replace(
        happened,
        body=kept(happened.body, KEPT_BYTES),
        message=kept(happened.message, KEPT_BYTES),
        code=kept(happened.code, LONGEST_CODE),
    )


def fingerprint(
    *,
    provider: str,
    message: str,
    recipient: str,
    kind: EventKind,
    occurred_at: datetime | None,
    raw: object,
) -> str:
    """Equal for two tellings of one happening.

    An event that says neither which message nor when is only like one of the very same content.
    """
    facts: list[Any] = [provider, message, recipient, kind.value]
    if message and occurred_at is not None:
        facts.append(occurred_at.isoformat())
    else:
        facts.append(raw)
    return sha256(json.dumps(facts, sort_keys=True).encode())
