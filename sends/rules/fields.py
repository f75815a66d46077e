"""The kinds of value a proposal is made of, each checked as strictly as email needs it."""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.errors import NonASCIILocalPartDefect, ObsoleteHeaderDefect
from email.policy import default as email_policy
from typing import Annotated, Any

from email_validator import EmailNotValidError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, core_schema

from sends.rules.addresses import as_sent, domain_of
from sends.rules.keys import ACTION_KEY, ACTION_KEY_RULE, canonical
from sends.rules.limits import Limits
from sends.rules.payloads import Mailbox

MAX_REPLY_TO = 10
MAX_NAME = 255
MAX_LINE = 998  # RFC 5322, 2.1.1: the longest line of a message
MAX_REFERENCES = 100
MAX_REASON = 10_000

# What we, or the provider, write ourselves.
RESERVED_HEADERS = frozenset(
    {
        *("from", "sender", "to", "cc", "bcc", "reply-to", "subject", "date", "message-id"),
        *("in-reply-to", "references", "mime-version", "return-path", "received"),
        *("authentication-results", "delivered-to", "errors-to", "apparently-to"),
        *("idempotency-key", "x-smtpapi", "x-original-to"),
    }
)
# With these headers, providers take orders: another Bcc, a template, a schedule. What was approved
# would not be what is sent.
RESERVED_PREFIXES = (
    *("content-", "resent-", "received-", "arc-", "dkim-", "domainkey-", "x-envelope-"),
    *("x-outbox-", "x-mc-", "x-mandrill-", "x-mailgun-", "x-ses-", "x-sg-", "x-resend-"),
    *("x-pm-", "x-postmark-", "x-msys-", "x-mailin-", "x-sib-", "x-mj-", "x-mailjet-", "x-mt-"),
)

HEADER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,75}")
MESSAGE_ID = re.compile(r"<[\x21-\x3b\x3d\x3f-\x7e]{1,500}>")
CONTEXT_HASH = re.compile(r"[A-Za-z0-9_.:+/=-]{1,64}")
RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
ENCODED_WORD = re.compile(r"=\?([^?\s]+)\?([bBqQ])\?([^?\s]*)\?=")
# Broken up by a blank or left open, it is none, but some readers take it for one.
LIKE_ENCODED_WORD = re.compile(r"=\?[\w*-]+\?[bBqQ]\?", re.ASCII)
A_WORD = r"=\?[^?\s]+\?[bBqQ]\?[^?\s]*\?="
BETWEEN_ENCODED_WORDS = re.compile(rf"({A_WORD})[ \t]+(?={A_WORD})")
# What may not stand in a line: C0 and C1 controls, and all that some program takes for a line end.
NOT_IN_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
NOT_IN_A_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


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
    if LIKE_ENCODED_WORD.search(line):
        raise PydanticCustomError(
            "encoded_word",
            "holds an encoded word broken up or inside another; write plain Unicode",
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
    try:
        return as_sent(_line(value))
    except EmailNotValidError as error:
        raise PydanticCustomError(
            "address", "is not an address: {why}", {"why": str(error)}
        ) from None


def moment(value: Any) -> datetime:
    if isinstance(value, str) and RFC_3339.fullmatch(value):
        try:
            return datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise PydanticCustomError(
        "time", "give a time with its zone, as in 2026-07-01T09:30:00Z (RFC 3339)"
    )


def one_or_many(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _at_most(most: int) -> BeforeValidator:
    """Counts before the members are looked at: pydantic alone would first judge each of them."""
    return BeforeValidator(lambda value: _counted(value, most))


@dataclass(frozen=True)
class Within:
    """As `_at_most`, of the Limits that the whole is validated with; of a text its length counts.

    The JSON Schema names the limit: how much it is, an installation says.
    """

    limit: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def count(value: Any, info: ValidationInfo[Limits]) -> Any:
            return _counted(value, getattr(info.context, self.limit))

        return core_schema.with_info_before_validator_function(count, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | {"x-limit": self.limit}


def _counted(value: Any, most: int) -> Any:
    if isinstance(value, list | dict) and len(value) > most:
        raise PydanticCustomError("too_many", "at most {most} are allowed", {"most": most})
    if isinstance(value, str) and len(value) > most:
        raise PydanticKnownError("string_too_long", {"max_length": most})
    return value


def _ids(value: Any) -> Any:
    return value.split(" ") if isinstance(value, str) else value


def is_reserved(header: str) -> bool:
    """Whether this header is not an agent's to set."""
    lower = header.lower()
    return lower in RESERVED_HEADERS or lower.startswith(RESERVED_PREFIXES)


def _header(name: str) -> str:
    if not HEADER_NAME.fullmatch(name):
        raise PydanticCustomError("header_name", "give letters, digits and hyphens, at most 76")
    if is_reserved(name):
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


def _small_json(value: dict[str, Any], info: ValidationInfo[Limits]) -> dict[str, Any]:
    try:
        size = len(canonical(value))
    except UnicodeEncodeError:
        return value  # named with its pointer by `_unstorable`
    most = info.context.metadata
    if size > most:
        raise PydanticCustomError(
            "too_large", "at most {most} bytes of JSON are kept", {"most": most}
        )
    return value


# The length is checked first.
Subject = Annotated[str, Within("subject"), AfterValidator(_line)]
HeaderValue = Annotated[str, Within("header"), AfterValidator(_line)]
Name = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_line)]
Body = Annotated[str, Within("body"), AfterValidator(_text)]
Reason = Annotated[str, Field(max_length=MAX_REASON), AfterValidator(_text)]
Label = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_line)]
Address = Annotated[str, Field(max_length=320), AfterValidator(_address)]
Moment = Annotated[datetime, BeforeValidator(moment, json_schema_input_type=datetime)]
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
Headers = Annotated[
    dict[HeaderName, HeaderValue],
    Within("headers"),
    AfterValidator(_headers_once),
]
References = Annotated[
    list[MessageId],
    _at_most(MAX_REFERENCES),
    BeforeValidator(_ids),
    Field(max_length=MAX_REFERENCES),
]
Metadata = Annotated[dict[str, Any], AfterValidator(_small_json)]


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

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(schema)]}

    @property
    def mailbox(self) -> Mailbox:
        return Mailbox(self.address, self.name)


# What Python's parser raises where it trips over its own feet, as over ". <jo@example.org>"; and
# it follows comments in comments all the way down.
PARSER_FAILS = (ValueError, AttributeError, IndexError, TypeError, RecursionError)


def _parted(value: str) -> dict[str, str]:
    """Name and address of a mailbox in a string. The address is cut out, never rewritten."""
    _no_surrogate(value)
    is_named = len(value) <= MAX_LINE and value.endswith(">")
    if not is_named or NOT_IN_A_LINE.search(decoded(value)):
        return {"address": value}
    try:
        header = email_policy.header_factory("to", _in_one_word(value))
    except PARSER_FAILS:
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


def _in_one_word(value: str) -> str:
    """Each run of encoded words as one: Python's parser would put spaces between them."""
    joined = BETWEEN_ENCODED_WORDS.sub(r"\1", value)
    return re.sub(rf"(?:{A_WORD})+", lambda run: _encoded_word(decoded(run[0])), joined)


def _encoded_word(text: str) -> str:
    return f"=?utf-8?b?{base64.b64encode(text.encode()).decode()}?="


NOT_ONE_MAILBOX = PydanticCustomError(
    "mailbox",
    "is not one mailbox; give an object with name and address, or quote the name, as in "
    '"Doe, Jo" <jo@example.com>',
)


Boxes = Annotated[list[Box], Within("recipients"), BeforeValidator(one_or_many)]
ReplyTo = Annotated[
    list[Box],
    _at_most(MAX_REPLY_TO),
    BeforeValidator(one_or_many),
    Field(max_length=MAX_REPLY_TO),
]
