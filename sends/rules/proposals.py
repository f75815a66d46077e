"""A proposal as an agent may write it: read strictly, with every wrong field named at once."""

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.errors import NonASCIILocalPartDefect, ObsoleteHeaderDefect
from email.policy import default as email_policy
from typing import Annotated, Any

from email_validator import EmailNotValidError, validate_email
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from sends.rules.addresses import domain_of, normal
from sends.rules.keys import ACTION_KEY, ACTION_KEY_RULE, canonical, derived_action_key, sha256
from sends.rules.payloads import Mailbox, Message

MAX_BODY_BYTES = 2_500_000  # of the whole request
MAX_DEPTH = 32
MAX_RECIPIENTS = 50
MAX_REPLY_TO = 10
MAX_NAME = 255
MAX_LINE = 998  # RFC 5322, 2.1.1: the longest line of a message
MAX_TEXT = 1_000_000
MAX_HEADERS = 50
MAX_REFERENCES = 100
MAX_REASON = 10_000
MAX_METADATA_BYTES = 16_384

# What we, or the provider, write ourselves.
RESERVED_HEADERS = frozenset(
    {
        *("from", "sender", "to", "cc", "bcc", "reply-to", "subject", "date", "message-id"),
        *("in-reply-to", "references", "mime-version", "return-path", "received"),
        *("dkim-signature", "domainkey-signature", "authentication-results", "delivered-to"),
        *("errors-to", "apparently-to", "idempotency-key", "x-smtpapi"),
    }
)
# With these headers, providers take orders: another Bcc, a template, a schedule. What was approved
# would not be what is sent.
RESERVED_PREFIXES = (
    *("content-", "resent-", "arc-", "x-outbox-", "x-mc-", "x-mandrill-", "x-mailgun-", "x-ses-"),
    *("x-pm-", "x-postmark-", "x-msys-", "x-mailin-", "x-sib-", "x-mj-", "x-mailjet-", "x-mt-"),
)

HEADER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,75}")
MESSAGE_ID = re.compile(r"<[\x21-\x3b\x3d\x3f-\x7e]{1,500}>")
CONTEXT_HASH = re.compile(r"[A-Za-z0-9_.:+/=-]{1,64}")
RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
ENCODED_WORD = re.compile(r"=\?([^?\s]+)\?([bBqQ])\?([^?\s]*)\?=")
BETWEEN_ENCODED_WORDS = re.compile(r"(\?=)[ \t]+(?==\?)")
# What may not stand in a line: C0 and C1 controls, and all that some program takes for a line end.
NOT_IN_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
NOT_IN_A_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class NotJson(Exception):
    """The request's body is not JSON as we take it; the words say why."""


@dataclass(frozen=True)
class Wrong:
    """One thing that is wrong: where (a JSON pointer, RFC 6901), a stable code, what is allowed."""

    pointer: str
    code: str
    detail: str


class WrongProposal(Exception):
    """Everything that is wrong with a proposal; none of it was taken in."""

    def __init__(self, *errors: Wrong) -> None:
        super().__init__("; ".join(f"{wrong.pointer}: {wrong.detail}" for wrong in errors))
        self.errors = errors


# Reading


def read_json(raw: bytes) -> Any:
    """The document in a request's body, or NotJson.

    Stricter than `json.loads`: a name given twice, NaN, Infinity, and numbers beyond all bounds
    mean different things to different readers, and what was approved must mean one thing.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJson(f"The body is not UTF-8: byte {error.start} cannot be read.") from None
    try:
        document = json.loads(
            text,
            object_pairs_hook=_each_name_once,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except json.JSONDecodeError as error:
        raise NotJson(
            f"The body is not JSON: {error.msg}, line {error.lineno} column {error.colno}."
        ) from None
    except RecursionError:
        raise NotJson(TOO_DEEP) from None
    if any(pointer.count("/") > MAX_DEPTH for pointer, _ in _walk(document)):
        raise NotJson(TOO_DEEP)
    return document


TOO_DEEP = f"The body is nested too deeply; at most {MAX_DEPTH} levels are read."


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, value in pairs:
        if name in read:
            raise NotJson(f"The name {json.dumps(name)} is given twice in one object.")
        read[name] = value
    return read


def _no_constant(name: str) -> None:
    raise NotJson(f"{name} is not JSON; give a number, or null.")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise NotJson(f"The number {digits[:40]} is too large; give it as text.")
    return number


def _bounded(digits: str) -> int:
    if len(digits) > 40:
        raise NotJson(f"The number {digits[:40]}… is too large; give it as text.")
    return int(digits)


def _walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Every value of the document with its pointer; names of members come as values too."""
    waiting = [("", value)]
    while waiting:
        pointer, value = waiting.pop()
        yield pointer, value
        if isinstance(value, dict):
            for name, member in value.items():
                yield pointer, name
                waiting.append((f"{pointer}/{_escaped(name)}", member))
        elif isinstance(value, list):
            waiting.extend((f"{pointer}/{index}", member) for index, member in enumerate(value))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


# Single values


def decoded(line: str) -> str:
    """The line as its reader will see it: encoded words (RFC 2047) written out, once.

    Whoever approves has to see what the recipient will; and a line break may hide in one.
    """
    joined = BETWEEN_ENCODED_WORDS.sub(r"\1", line)
    return ENCODED_WORD.sub(_decoded_word, joined)


def _decoded_word(word: re.Match[str]) -> str:
    charset, encoding, data = word.groups()
    try:
        if encoding in "bB":
            taken = base64.b64decode(data, validate=True)
        else:
            taken = binascii.a2b_qp(data.encode("ascii"), header=True)
        return taken.decode(charset.partition("*")[0])
    except (ValueError, LookupError):
        raise PydanticCustomError(
            "encoded_word", "holds an encoded word that cannot be read; write plain Unicode"
        ) from None


def _line(value: str) -> str:
    _no_surrogate(value)
    line = decoded(value)
    _no_surrogate(line)
    if found := NOT_IN_A_LINE.search(line):
        raise PydanticCustomError(
            "control_character",
            "holds {character}; line breaks and other controls are not allowed here",
            {"character": f"U+{ord(found[0]):04X}"},
        )
    if ENCODED_WORD.search(line):
        raise PydanticCustomError(
            "encoded_word", "holds an encoded word inside another; write plain Unicode"
        )
    return line


def _text(value: str) -> str:
    _no_surrogate(value)
    if found := NOT_IN_A_TEXT.search(value):
        raise PydanticCustomError(
            "control_character",
            "holds {character}; of the controls only tab and line breaks are allowed",
            {"character": f"U+{ord(found[0]):04X}"},
        )
    return value


def _no_surrogate(value: str) -> None:
    if LONE_SURROGATE.search(value):
        raise PydanticCustomError("lone_surrogate", "holds half of a surrogate pair")


def _matching(pattern: re.Pattern[str], code: str, rule: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise PydanticCustomError(code, "give {rule}", {"rule": rule})
        return value

    return check


def _address(value: str) -> str:
    """The address as given, its domain in ASCII where it was not (IDNA 2008)."""
    line = _line(value)
    try:
        valid = validate_email(
            line,
            check_deliverability=False,
            allow_quoted_local=True,
            test_environment=True,
            strict=True,
        )
    except EmailNotValidError as error:
        raise PydanticCustomError(
            "address", "is not an address: {why}", {"why": str(error)}
        ) from None
    local, _, domain = line.rpartition("@")
    return line if domain.isascii() else f"{local}@{valid.ascii_domain}"


def _moment(value: Any) -> datetime:
    if isinstance(value, str) and RFC_3339.fullmatch(value):
        try:
            return datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise PydanticCustomError(
        "time", "give a time with its zone, as in 2026-07-01T09:30:00Z (RFC 3339)"
    )


def _one_or_many(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _ids(value: Any) -> Any:
    return value.split(" ") if isinstance(value, str) else value


def _header(name: str) -> str:
    lower = name.lower()
    if not HEADER_NAME.fullmatch(name):
        raise PydanticCustomError("header_name", "give letters, digits and hyphens, at most 76")
    if lower in RESERVED_HEADERS or lower.startswith(RESERVED_PREFIXES):
        raise PydanticCustomError(
            "reserved_header",
            "{name} is reserved; it has a field of its own, or is not an agent's to set",
            {"name": name},
        )
    return name


def _headers_once(value: dict[str, str]) -> dict[str, str]:
    if len({name.lower() for name in value}) < len(value):
        raise PydanticCustomError("header_twice", "one header is given twice, in two spellings")
    return value


def _small_json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        size = len(canonical(value))
    except UnicodeEncodeError:
        return value  # named with its pointer by `_unstorable`
    if size > MAX_METADATA_BYTES:
        raise PydanticCustomError(
            "too_large", "at most {most} bytes of JSON are kept", {"most": MAX_METADATA_BYTES}
        )
    return value


# Read from left to right: the length is checked first.
Line = Annotated[str, Field(max_length=MAX_LINE), AfterValidator(_line)]
Name = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_line)]
Body = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_text)]
Reason = Annotated[str, Field(max_length=MAX_REASON), AfterValidator(_text)]
Label = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_line)]
Address = Annotated[str, Field(max_length=320), AfterValidator(_address)]
Moment = Annotated[datetime, BeforeValidator(_moment, json_schema_input_type=datetime)]
MessageId = Annotated[
    str,
    AfterValidator(
        _matching(
            MESSAGE_ID, "message_id", "a Message-ID in angle brackets, as in <id@example.com>"
        )
    ),
]
ActionKey = Annotated[str, AfterValidator(_matching(ACTION_KEY, "action_key", ACTION_KEY_RULE))]
ContextHash = Annotated[
    str,
    AfterValidator(
        _matching(CONTEXT_HASH, "context_hash", "1 to 64 letters, digits or _ . : + / = -")
    ),
]
HeaderName = Annotated[str, AfterValidator(_header)]


class Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class Box(Fields):
    """A mailbox: `{"name": …, "address": …}`, or a string such as `"Doe, Jo" <jo@example.com>`."""

    address: Address
    name: Name = ""

    @model_validator(mode="before")
    @classmethod
    def _from_string(cls, value: Any) -> Any:
        return _parted(value) if isinstance(value, str) else value

    @property
    def mailbox(self) -> Mailbox:
        return Mailbox(self.address, self.name)


def _parted(value: str) -> dict[str, str]:
    """Name and address of a mailbox in a string. The address is cut out, never rewritten."""
    _no_surrogate(value)
    if NOT_IN_A_LINE.search(decoded(value)) or not value.endswith(">"):
        return {"address": value}
    try:
        header = email_policy.header_factory("to", value)
    except ValueError:
        raise NOT_ONE_MAILBOX from None
    harmless = (ObsoleteHeaderDefect, NonASCIILocalPartDefect)
    defects = [defect for defect in header.defects if not isinstance(defect, harmless)]
    address = value[value.rindex("<") + 1 : -1]
    if (
        defects
        or len(header.addresses) != 1
        or header.groups[0].display_name is not None
        or domain_of(header.addresses[0].addr_spec) != domain_of(address)
    ):
        raise NOT_ONE_MAILBOX
    return {"address": address, "name": header.addresses[0].display_name}


NOT_ONE_MAILBOX = PydanticCustomError(
    "mailbox",
    "is not one mailbox; give an object with name and address, or quote the name, as in "
    '"Doe, Jo" <jo@example.com>',
)


Boxes = Annotated[list[Box], BeforeValidator(_one_or_many), Field(max_length=MAX_RECIPIENTS)]
ReplyTo = Annotated[list[Box], BeforeValidator(_one_or_many), Field(max_length=MAX_REPLY_TO)]


class Proposal(Fields):
    """A message as its agent proposes it; `parse` makes one, or says everything that is wrong.

    The first four belong to the action and stay the same in all its versions; the rest is what
    one version says, and when and why.
    """

    action_key: ActionKey | None = None
    run: Label | None = None
    triggered_by: Label | None = None
    purpose: Label | None = None
    workflow: Label | None = None
    template: Label | None = None
    context: Any = None
    context_hash: ContextHash | None = None
    sender: Box | None = None
    to: Boxes = Field(default_factory=list)
    cc: Boxes = Field(default_factory=list)
    bcc: Boxes = Field(default_factory=list)
    reply_to: ReplyTo = Field(default_factory=list)
    subject: Line = ""
    text: Body | None = None
    html: Body | None = None
    headers: Annotated[
        dict[HeaderName, Line], Field(max_length=MAX_HEADERS), AfterValidator(_headers_once)
    ] = Field(default_factory=dict)
    in_reply_to: MessageId | None = None
    references: Annotated[
        list[MessageId], BeforeValidator(_ids), Field(max_length=MAX_REFERENCES)
    ] = Field(default_factory=list)
    reason: Reason = ""
    not_before: Moment | None = None
    deadline: Moment | None = None
    metadata: Annotated[dict[str, Any], AfterValidator(_small_json)] = Field(default_factory=dict)

    @property
    def recipients(self) -> list[str]:
        """The addresses of To, Cc and Bcc, in this order."""
        return [box.address for box in [*self.to, *self.cc, *self.bcc]]

    @property
    def context_digest(self) -> str:
        """`context_hash`, or the hash of `context`; "" where there is neither."""
        if self.context_hash is not None:
            return self.context_hash
        return "" if self.context is None else sha256(canonical(self.context))

    def message(self, sender: Mailbox) -> Message:
        """What is said, from this sender. Headers are sorted: their order means nothing."""
        return Message(
            sender=sender,
            to=_mailboxes(self.to),
            cc=_mailboxes(self.cc),
            bcc=_mailboxes(self.bcc),
            reply_to=_mailboxes(self.reply_to),
            subject=self.subject,
            text=self.text,
            html=self.html,
            headers=tuple(sorted(self.headers.items())),
            in_reply_to=self.in_reply_to or "",
            references=tuple(self.references),
        )

    def key(self) -> tuple[str, bool]:
        """The action key, and whether it was derived from the proposal; WrongProposal if neither.

        Derived from what stays the same when a run repeats itself, so that an agent which cannot
        keep a key gets the first message again, not a second one.
        """
        if self.action_key is not None:
            return self.action_key, False
        if wrong := list(_no_key(self.model_dump(include=set(DERIVES)))):
            raise WrongProposal(*wrong)
        derived = derived_action_key(
            run=self.run or "",
            template=self.template or "",
            context_hash=self.context_digest,
            recipients=self.recipients,
        )
        return derived, True


def _mailboxes(boxes: Iterable[Box]) -> tuple[Mailbox, ...]:
    return tuple(box.mailbox for box in boxes)


# What an action key is derived from, besides the recipients; of the last two one is enough.
DERIVES = ("run", "template", "context", "context_hash")


def _no_key(given: Mapping[str, Any]) -> Iterator[Wrong]:
    there = {name for name in DERIVES if given.get(name) is not None}
    missing = {"run", "template"} - there
    if not there & {"context", "context_hash"}:
        missing.add("context or context_hash")
    if missing:
        yield Wrong(
            "/action_key",
            "required",
            f"give action_key ({ACTION_KEY_RULE}), a name for this message that stays the same"
            " when you repeat the request; or run, template, and context or context_hash, to have"
            f" it derived (missing: {', '.join(sorted(missing))})",
        )


class Withdrawal(Fields):
    """Why an agent takes a message back."""

    reason: Reason = ""


# The whole proposal


def parse(document: Any, *, header_key: str | None = None, needs_key: bool = True) -> Proposal:
    """The proposal in a document that `read_json` read, or WrongProposal with all that is wrong.

    A member that is null counts as left out. `header_key` is the value of the header
    Idempotency-Key, another place for the action key. A new version needs no key: its action
    has one.
    """
    wrong = list(_unstorable(document))
    given = document
    if isinstance(document, dict):
        given = {name: value for name, value in document.items() if value is not None}
        key, wrong_key = _one_key(given.get("action_key"), header_key)
        wrong += wrong_key
        given |= {} if key is None else {"action_key": key}
    try:
        proposal = Proposal.model_validate(given)
    except ValidationError as error:
        wrong += [_wrong(found, given, Proposal) for found in error.errors()]
        proposal = None
    if isinstance(given, dict):
        wrong += _across(given)
        if needs_key and "action_key" not in given:
            wrong += _no_key(given)
    if proposal is None or wrong:
        raise WrongProposal(*_one_each(wrong))
    return proposal


def parse_withdrawal(document: Any) -> Withdrawal:
    """The withdrawal in a document, or WrongProposal with all that is wrong."""
    wrong = list(_unstorable(document))
    try:
        withdrawal = Withdrawal.model_validate(document)
    except ValidationError as error:
        wrong += [_wrong(found, document, Withdrawal) for found in error.errors()]
        withdrawal = None
    if withdrawal is None or wrong:
        raise WrongProposal(*_one_each(wrong))
    return withdrawal


def _one_key(field: Any, header: str | None) -> tuple[Any, list[Wrong]]:
    if header is None:
        return field, []
    # The header's draft standard writes the key as a quoted string.
    key = header[1:-1] if len(header) > 1 and header[0] == header[-1] == '"' else header
    if not key:
        said = f"the header Idempotency-Key is empty; leave it out, or give {ACTION_KEY_RULE}"
        return field, [Wrong("/action_key", "empty_key", said)]
    if field not in (None, key):
        said = "action_key and the header Idempotency-Key differ; give one of them"
        return field, [Wrong("/action_key", "two_keys", said)]
    return key, []


def _unstorable(document: Any) -> Iterator[Wrong]:
    """NUL and halves of surrogate pairs, wherever they stand: databases refuse them."""
    for pointer, value in _walk(document):
        if not isinstance(value, str):
            continue
        if "\x00" in value:
            yield Wrong(_storable(pointer), "control_character", "holds U+0000, which is not text")
        elif LONE_SURROGATE.search(value):
            yield Wrong(_storable(pointer), "lone_surrogate", "holds half of a surrogate pair")


def _storable(pointer: str) -> str:
    return LONE_SURROGATE.sub("\ufffd", pointer)


def _across(given: Mapping[str, Any]) -> Iterator[Wrong]:
    """What is wrong between fields, also while some of them are wrong by themselves."""
    if not (given.get("text") or given.get("html")):
        yield Wrong("/text", "required", "give text or html, or both; an email needs a body")
    if not any(given.get(name) for name in ("to", "cc", "bcc")):
        yield Wrong("/to", "required", "give at least one recipient in to, cc or bcc")
    yield from _twice(given)
    if "purpose" in given and "triggered_by" not in given:
        yield Wrong("/purpose", "without_trigger", "give triggered_by with it, or neither")
    if "context" in given and "context_hash" in given:
        yield Wrong("/context_hash", "two_contexts", "give context or context_hash, not both")
    not_before, deadline = (_time(given.get(name)) for name in ("not_before", "deadline"))
    if not_before and deadline and deadline <= not_before:
        yield Wrong("/deadline", "deadline", "must be later than not_before")


def _time(value: Any) -> datetime | None:
    try:
        return _moment(value)
    except PydanticCustomError:
        return None


def _twice(given: Mapping[str, Any]) -> Iterator[Wrong]:
    seen: dict[str, str] = {}
    for field in ("to", "cc", "bcc"):
        boxes = _one_or_many(given.get(field, []))
        for index, box in enumerate(boxes):
            pointer = f"/{field}/{index}" if isinstance(given[field], list) else f"/{field}"
            try:
                address = normal(Box.model_validate(box).address)
            except ValidationError:
                continue
            if address in seen:
                said = f"is the same recipient as {seen[address]}; name each one once"
                yield Wrong(pointer, "duplicate_recipient", said)
            seen.setdefault(address, pointer)
    if len(seen) > MAX_RECIPIENTS:
        yield Wrong("/to", "too_many", f"at most {MAX_RECIPIENTS} recipients in to, cc and bcc")


def _one_each(wrong: Iterable[Wrong]) -> list[Wrong]:
    """The first thing that is wrong at each place, in the order of the places."""
    first: dict[str, Wrong] = {}
    for found in wrong:
        first.setdefault(found.pointer, found)
    return sorted(first.values(), key=lambda found: found.pointer)


# What pydantic found, in our words

WORDS: dict[str, tuple[str, str]] = {
    "missing": ("required", "is needed"),
    "string_type": ("wrong_type", "give a string"),
    "string_unicode": ("lone_surrogate", "holds half of a surrogate pair"),
    "string_too_short": ("too_short", "must not be empty"),
    "string_too_long": ("too_long", "at most {max_length} characters are allowed"),
    "list_type": ("wrong_type", "give a list"),
    "too_long": ("too_many", "at most {max_length} are allowed"),
    "dict_type": ("wrong_type", "give an object"),
    "model_type": ("wrong_type", "give an object"),
}


def _wrong(found: Any, given: Any, model: type[Fields]) -> Wrong:
    pointer = _pointer(found["loc"], given)
    kind, context = found["type"], found.get("ctx", {})
    if kind == "extra_forbidden":
        return Wrong(pointer, "unknown_field", _unknown(found["loc"], model))
    if kind == "model_type" and found["loc"]:
        return Wrong(pointer, "wrong_type", "give an object with name and address, or a string")
    if kind in WORDS:
        code, words = WORDS[kind]
        return Wrong(pointer, code, words.format(**context))
    return Wrong(pointer, kind, found["msg"])


def _unknown(place: tuple[int | str, ...], model: type[Fields]) -> str:
    if place == ("attachments",):
        return "attachments are not supported yet; send a link, or the text itself"
    allowed = model.model_fields if len(place) == 1 else Box.model_fields
    return f"is not known here; allowed are {', '.join(allowed)}"


def _pointer(place: tuple[int | str, ...], given: Any) -> str:
    """Where in the document as it was given: a lone mailbox has no index, a string no members."""
    pointer = ""
    for part in place:
        if part == "[key]" or not isinstance(given, dict | list):
            break
        if isinstance(given, dict) and isinstance(part, int):
            continue
        pointer += f"/{_escaped(str(part))}"
        if isinstance(given, dict):
            given = given.get(str(part), {})
        else:
            given = given[int(part)] if int(part) < len(given) else None
    return _storable(pointer)
