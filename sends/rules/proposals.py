"""A proposal as an agent may write it: read strictly, with every wrong field named at once."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from pydantic import Field, ValidationError
from pydantic_core import PydanticCustomError

from sends.rules.addresses import normal
from sends.rules.attachments import EXAMPLE, Attached, Attachments
from sends.rules.fields import (
    LONE_SURROGATE,
    ActionKey,
    Body,
    Box,
    Boxes,
    ContextHash,
    Fields,
    Headers,
    Label,
    MessageId,
    Metadata,
    Moment,
    Reason,
    References,
    ReplyTo,
    Subject,
    moment,
    one_or_many,
)
from sends.rules.keys import ACTION_KEY_RULE, canonical, derived_action_key, sha256
from sends.rules.limits import DEFAULTS, Limits
from sends.rules.payloads import Attachment, Mailbox, Message
from sends.rules.strict_json import pointer_to, walk

MOST_NAMED = 100  # a wall of errors helps nobody, and costs what a small request should not


@dataclass(frozen=True)
class Wrong:
    """One thing that is wrong: where (a JSON pointer, RFC 6901), a stable code, what is allowed."""

    pointer: str
    code: str
    detail: str


class WrongProposal(Exception):
    """What is wrong with a proposal, at most MOST_NAMED of it; none of it was taken in."""

    def __init__(self, *errors: Wrong) -> None:
        super().__init__("; ".join(f"{wrong.pointer}: {wrong.detail}" for wrong in errors))
        self.errors = errors


class Proposal(Fields):
    """A message as its agent proposes it; `parse` makes one, or says everything that is wrong.

    The first four belong to the action and stay the same in all its versions; the rest is what
    one version says, and when and why.
    """

    action_key: ActionKey | None = Field(
        None,
        description="Your name for this message, the same when you repeat the request. No personal "
        "data. May be left out with `run`, `template` and `context` or `context_hash`: then it is "
        "derived from them and the recipients.",
    )
    run: Label | None = Field(
        None, description="Your name for this execution. Runs can be halted, and have a budget."
    )
    triggered_by: Label | None = Field(
        None, description="The id of the event that caused this. It is answered once per `purpose`."
    )
    purpose: Label | None = Field(None, description="What the answer to that event is for.")
    workflow: Label | None = Field(None, description="The kind of work, for people to read.")
    template: Label | None = Field(None, description="Its name; approval policy may go by it.")
    context: Any = Field(
        None, description="What the template was filled with. Only its hash is kept."
    )
    context_hash: ContextHash | None = Field(None, description="Your own hash of the context.")
    sender: Box | None = Field(
        None, description="One of the senders set up here; the agent's own where it is left out."
    )
    to: Boxes = Field(
        default_factory=list,
        description="Mailboxes: `jo@example.org`, `Jo <jo@example.org>`, or objects with `name` "
        "and `address`. At least one in `to`, `cc` or `bcc`; each address once.",
    )
    cc: Boxes = Field(default_factory=list, description="Mailboxes.")
    bcc: Boxes = Field(default_factory=list, description="Mailboxes, in the envelope only.")
    reply_to: ReplyTo = Field(default_factory=list, description="Where answers are to go.")
    subject: Subject = Field("", description="One line.")
    text: Body | None = Field(None, description="The plain text. Give it, or `html`, or both.")
    html: Body | None = Field(None, description="The formatted text.")
    headers: Headers = Field(
        default_factory=dict,
        description="Further headers by name. Those with a field of their own are refused, and "
        "those that give a provider orders.",
    )
    in_reply_to: MessageId | None = Field(
        None, description="The Message-ID that this answers: `<id@example.com>`."
    )
    references: References = Field(
        default_factory=list, description="The Message-IDs of the thread, oldest first."
    )
    attachments: Attachments | None = Field(
        None,
        description=f"Files, in their order: `{json.dumps(EXAMPLE)}`; with `content_id` and "
        "`inline` those that `html` shows by `cid:`. Left out of a new version, those of the "
        "version it replaces stay; an empty list takes them off.",
        examples=[[EXAMPLE]],
    )
    reason: Reason = Field("", description="Why you write this. The approver reads it.")
    not_before: Moment | None = Field(
        None, description="Not sent before: `2027-07-01T09:30:00Z` (RFC 3339, with its zone)."
    )
    deadline: Moment | None = Field(None, description="Cancelled if it could not be sent by then.")
    metadata: Metadata = Field(
        default_factory=dict,
        description="Anything of your own, given back; not much, counted as JSON.",
    )

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

    @property
    def files(self) -> dict[str, bytes]:
        """The bytes of the attachments by their SHA-256."""
        return {one.attachment.sha256: one.content_base64 for one in self.attachments or ()}

    def message(self, sender: Mailbox, *, kept: tuple[Attachment, ...] = ()) -> Message:
        """What is said, from this sender. Headers are sorted: their order means nothing.

        `kept` are the attachments of the version that this replaces, if it says nothing of them.
        """
        attached = self.attachments
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
            attachments=kept if attached is None else tuple(one.attachment for one in attached),
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

    reason: Reason = Field("", description="Why. People read it.")


class NamedRun(Fields):
    """A run, by the name that its agent gives it."""

    name: Label = Field(description="Your name for this execution, as in `run` of a message.")


OneOf = TypeVar("OneOf", bound=Fields)


# The whole proposal


def parse(
    document: Any,
    *,
    header_key: str | None = None,
    needs_key: bool = True,
    limits: Limits = DEFAULTS,
) -> Proposal:
    """The proposal in a document that `read_json` read, or WrongProposal with all that is wrong.

    A member that is null counts as left out. `header_key` is the value of the header
    Idempotency-Key, another place for the action key. A new version needs no key: its action
    has one.
    """
    wrong = list(islice(_unstorable(document), MOST_NAMED))
    given = _without_nulls(document)
    if isinstance(given, dict):
        key, wrong_key = _one_key(given.get("action_key"), header_key)
        wrong += wrong_key
        given |= {} if key is None else {"action_key": key}
    try:
        proposal = Proposal.model_validate(given, context=limits)
    except ValidationError as error:
        wrong += [_wrong(found, given, Proposal) for found in error.errors()[:MOST_NAMED]]
        proposal = None
    if isinstance(given, dict):
        wrong += _across(given, limits)
        if needs_key and "action_key" not in given:
            wrong += _no_key(given)
    if proposal is None or wrong:
        raise WrongProposal(*_one_each(wrong))
    return proposal


def parse_as(model: type[OneOf], document: Any) -> OneOf:
    """A smaller document as `model` says it is written, or WrongProposal with all that is wrong."""
    wrong = list(islice(_unstorable(document), MOST_NAMED))
    given = _without_nulls(document)
    try:
        read = model.model_validate(given)
    except ValidationError as error:
        wrong += [_wrong(found, given, model) for found in error.errors()[:MOST_NAMED]]
        read = None
    if read is None or wrong:
        raise WrongProposal(*_one_each(wrong))
    return read


def _without_nulls(document: Any) -> Any:
    if not isinstance(document, dict):
        return document
    return {name: value for name, value in document.items() if value is not None}


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
    for place, value in walk(document):
        if not isinstance(value, str):
            continue
        if "\x00" in value:
            at = _storable(place.pointer)
            yield Wrong(at, "control_character", "holds U+0000, which is not text")
        elif not value.isascii() and LONE_SURROGATE.search(value):
            at = _storable(place.pointer)
            yield Wrong(at, "lone_surrogate", "holds half of a surrogate pair")


def _storable(pointer: str) -> str:
    return LONE_SURROGATE.sub("\ufffd", pointer)


def _across(given: Mapping[str, Any], limits: Limits) -> Iterator[Wrong]:
    """What is wrong between fields, also while some of them are wrong by themselves."""
    if not (given.get("text") or given.get("html")):
        yield Wrong("/text", "required", "give text or html, or both; an email needs a body")
    if not any(given.get(name) for name in ("to", "cc", "bcc")):
        yield Wrong("/to", "required", "give at least one recipient in to, cc or bcc")
    yield from _twice(given, limits.recipients)
    yield from _attached(given)
    if "purpose" in given and "triggered_by" not in given:
        yield Wrong("/purpose", "without_trigger", "give triggered_by with it, or neither")
    if "context" in given and "context_hash" in given:
        yield Wrong("/context_hash", "two_contexts", "give context or context_hash, not both")
    not_before, deadline = (_time(given.get(name)) for name in ("not_before", "deadline"))
    if not_before and deadline and deadline <= not_before:
        yield Wrong("/deadline", "deadline", "must be later than not_before")


def _time(value: Any) -> datetime | None:
    try:
        return moment(value)
    except PydanticCustomError:
        return None


def _twice(given: Mapping[str, Any], most: int) -> Iterator[Wrong]:
    seen: dict[str, str] = {}
    for field in ("to", "cc", "bcc"):
        boxes = one_or_many(given.get(field, []))[: most + 1]
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
    if len(seen) > most:
        yield Wrong("/to", "too_many", f"at most {most} recipients in to, cc and bcc")


def _attached(given: Mapping[str, Any]) -> Iterator[Wrong]:
    """What ties attachments to the HTML, and to each other."""
    attached = given.get("attachments")
    seen: dict[str, int] = {}
    for index, one in enumerate(attached if isinstance(attached, list) else ()):
        if not isinstance(one, dict):
            continue
        pointer, content_id = f"/attachments/{index}", one.get("content_id")
        if isinstance(content_id, str) and content_id in seen:
            said = f"is that of /attachments/{seen[content_id]}; give each its own"
            yield Wrong(f"{pointer}/content_id", "duplicate_content_id", said)
        elif isinstance(content_id, str):
            seen[content_id] = index
        if one.get("inline") is not True:
            continue
        if content_id is None:
            said = "is needed for what is inline: the name by which html shows it"
            yield Wrong(f"{pointer}/content_id", "required", said)
        if not given.get("html"):
            said = "needs html, which shows it; leave it out for a file beside the text"
            yield Wrong(f"{pointer}/inline", "without_html", said)


def _one_each(wrong: Iterable[Wrong]) -> list[Wrong]:
    """The first thing that is wrong at each place, in the order of the places."""
    first: dict[str, Wrong] = {}
    for found in wrong:
        first.setdefault(found.pointer, found)
    return sorted(first.values(), key=lambda found: found.pointer)[:MOST_NAMED]


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
    "bool_type": ("wrong_type", "give true or false"),
    "model_type": ("wrong_type", "give an object"),
}


def _wrong(found: Any, given: Any, model: type[Fields]) -> Wrong:
    pointer = _pointer(found["loc"], given)
    kind, context = found["type"], found.get("ctx", {})
    if kind == "extra_forbidden":
        return Wrong(pointer, "unknown_field", _unknown(found["loc"], model))
    if kind == "model_type" and found["loc"] and found["loc"][0] != "attachments":
        return Wrong(pointer, "wrong_type", "give an object with name and address, or a string")
    if kind in WORDS:
        code, words = WORDS[kind]
        return Wrong(pointer, code, words.format(**context))
    return Wrong(pointer, kind, found["msg"])


def _unknown(place: tuple[int | str, ...], model: type[Fields]) -> str:
    if len(place) > 1:
        model = Attached if place[0] == "attachments" else Box
    return f"is not known here; allowed are {', '.join(model.model_fields)}"


def _pointer(place: tuple[int | str, ...], given: Any) -> str:
    """Where in the document as it was given: a lone mailbox has no index, a string no members."""
    members = []
    for part in place:
        if part == "[key]" or not isinstance(given, dict | list):
            break
        if isinstance(given, dict) and isinstance(part, int):
            continue
        members.append(part)
        if isinstance(given, dict):
            given = given.get(str(part), {})
        else:
            given = given[int(part)] if int(part) < len(given) else None
    return _storable(pointer_to(members))
