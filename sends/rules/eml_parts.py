"""The parts of an email: which of them is its text, which its HTML, and which are files."""

import base64
import re
from email import errors
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default as email_policy
from functools import cached_property
from html import unescape
from typing import Any, cast
from urllib.parse import unquote

from sends.rules.charsets import NotText, read_text
from sends.rules.eml_headers import NotCarried, Structured, structured, unfolded

BODIES = {"text/plain": "text", "text/html": "html"}
# Read one part after the other. Of other kinds, the parts mean something only together.
IN_A_ROW = ("multipart/mixed", "multipart/digest", "multipart/parallel")
WHY_NOT = {
    "multipart/signed": "is signed, and the signature would not fit what is sent",
    "multipart/encrypted": "is encrypted, and nobody could approve what it says",
    "application/pkcs7-mime": "is signed or encrypted (S/MIME), and would not stay so",
    "multipart/report": "is a report by a mail server, whose parts mean something only together",
}
ENCODINGS = ("7bit", "8bit", "binary", "quoted-printable", "base64")
# Header fields of a part that became a member of the attachment or the body.
CARRIED = ("content-type", "content-transfer-encoding", "content-disposition", "content-id")
SUFFIXES = {"text/plain": ".txt", "text/html": ".html", "message/rfc822": ".eml"}
SHOWN = re.compile(r"cid:([^\s\"'<>()]+)", re.IGNORECASE)
TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`{|}~-]+")
BROKEN: dict[type[errors.MessageDefect], str] = {
    errors.NoBoundaryInMultipartDefect: "its Content-Type names no boundary of its parts",
    errors.StartBoundaryNotFoundDefect: "the boundary of its parts never comes",
    errors.CloseBoundaryNotFoundDefect: "it ends before its last part does, as if it were cut off",
    errors.MissingHeaderBodySeparatorDefect: "a line among its header fields is no such field",
    errors.FirstHeaderLineIsContinuationDefect: "its first line goes on from a line before it",
    errors.MisplacedEnvelopeHeaderDefect: "among its header fields is a From line of a mailbox",
    errors.InvalidBase64CharactersDefect: "it holds what is no base64",
    errors.InvalidBase64LengthDefect: "its base64 is cut off",
    errors.InvalidBase64PaddingDefect: "its base64 is cut off",
}


class Part(EmailMessage):
    """A part as the parser makes it, except that a message inside it stays the bytes it is.

    The parser would take that one apart, and put together again it may be another.
    """

    @cached_property
    def kind(self) -> str:
        return super().get_content_type()

    def get_content_type(self) -> str:
        return "application/octet-stream" if self.kind.startswith("message/") else self.kind

    @property
    def parts(self) -> list["Part"]:
        return cast(list["Part"], self.get_payload()) if self.is_multipart() else []

    def field(self, name: str) -> Structured | None:
        """The structured field of this name, None where there is none."""
        found = [str(raw) for given, raw in self.raw_items() if given.lower() == name]
        if len(found) > 1:
            raise NotCarried("header_twice", f"a part has {name} {len(found)} times")
        return structured(name, found[0]) if found else None

    def params(self, name: str) -> dict[str, str]:
        """The parameters of the field of this name."""
        field = self.field(name)
        if field is None:
            return {}
        return {name: field.filled(value) for name, value in field.header.params.items()}

    @property
    def disposition(self) -> str:
        field = self.field("content-disposition")
        return (field.header.content_disposition or "") if field is not None else ""

    @property
    def file_name(self) -> str:
        named = self.params("content-disposition").get("filename")
        return named or self.params("content-type").get("name", "")

    @property
    def content_id(self) -> str:
        found = [str(raw) for name, raw in self.raw_items() if name.lower() == "content-id"]
        return _bare(unfolded(found[0])) if found else ""

    def content(self) -> bytes:
        """The bytes of the part, its transfer encoding undone."""
        field = self.field("content-transfer-encoding")
        if field is not None and field.header.cte not in ENCODINGS:
            raise NotCarried("transfer_encoding", f"a part is encoded in {field.header.cte[:40]!a}")
        before = len(self.defects)
        content = self.get_payload(decode=True)
        _refuse(self.defects[before:])
        return cast(bytes, content)


def parsed(raw: bytes) -> Part:
    return cast(Part, BytesParser(Part, policy=email_policy).parsebytes(raw))


class Contents:
    """What an email holds: `fields` as a proposal has them.

    `left_out` are the names of what describes them and has no place there. Raises NotCarried.
    """

    def __init__(self, message: Part) -> None:
        self.bodies: dict[str, str] = {}
        self.files: list[dict[str, Any]] = []
        self.left_out: set[str] = set()
        self._refuse_broken(message)
        self._body(message)

    @property
    def fields(self) -> dict[str, Any]:
        """The members of the proposal. Inline are the files that the HTML shows."""
        shown = {unquote(found) for found in SHOWN.findall(unescape(self.bodies.get("html", "")))}
        files = [
            {**file, "inline": True} if file.get("content_id") in shown else file
            for file in self.files
        ]
        return {**self.bodies, **({"attachments": files} if files else {})}

    def _body(self, part: Part) -> None:
        """A part that says what the email says, or holds the one that does."""
        if part.kind in BODIES:
            self._say(part)
        elif part.kind in IN_A_ROW:
            self._in_a_row(part)
        elif part.kind == "multipart/alternative":
            for one in part.parts:
                self._body(one)
        elif part.kind == "multipart/related":
            self._related(part)
        else:
            raise _not_carried(part.kind)

    def _in_a_row(self, part: Part) -> None:
        """The first body in the row is the email's; what stands beside it are files."""
        said = len(self.bodies)
        for one in part.parts:
            if len(self.bodies) > said or not _may_hold_body(one):
                self._beside(one)
            else:
                self._body(one)

    def _related(self, part: Part) -> None:
        """One part, and what it shows by Content-ID."""
        start = _bare(part.params("content-type").get("start", ""))
        named = [one for one in part.parts if start and one.content_id == start]
        root = named[0] if named else part.parts[0]
        self._body(root)
        for one in part.parts:
            if one is root:
                continue
            if "content-location" in one and not one.content_id:
                raise NotCarried("not_carried", "a part is found by its Content-Location alone")
            self._beside(one)

    def _beside(self, part: Part) -> None:
        if part.kind in IN_A_ROW:
            for one in part.parts:
                self._beside(one)
        elif part.kind.startswith("multipart/"):
            raise NotCarried(
                "second_body", f"after its body comes a second one, in {part.kind}; only one fits"
            )
        else:
            self._attach(part)

    def _say(self, part: Part) -> None:
        name = BODIES[part.kind]
        if name in self.bodies:
            raise NotCarried("second_body", f"it has {part.kind} twice, each in place of the other")
        params = part.params("content-type")
        try:
            text = read_text(part.content(), params.get("charset", ""))
        except NotText as error:
            raise NotCarried("charset", f"its {part.kind} {error}") from None
        self.bodies[name] = text.replace("\r\n", "\n")
        self._describes(part)
        if params.get("format", "").lower() == "flowed":
            self.left_out.add("format=flowed")

    def _attach(self, part: Part) -> None:
        file = {
            "filename": part.file_name or self._name(part),
            "content_type": _content_type(part),
            "content_base64": base64.b64encode(part.content()).decode("ascii"),
        }
        if part.content_id:
            file["content_id"] = part.content_id
        self._describes(part)
        self.files.append(file)

    def _name(self, part: Part) -> str:
        """For a file without one: every attachment has a name."""
        return f"part-{len(self.files) + 1}{SUFFIXES.get(part.kind, '')}"

    def _describes(self, part: Part) -> None:
        names = (name for name, _ in part.raw_items() if name.lower().startswith("content-"))
        self.left_out.update(name.title() for name in names if name.lower() not in CARRIED)

    def _refuse_broken(self, part: Part) -> None:
        _refuse(part.defects)
        for one in part.parts:
            self._refuse_broken(one)


def _may_hold_body(part: Part) -> bool:
    if part.kind in BODIES:
        return part.disposition != "attachment" and not part.file_name
    return part.kind.startswith("multipart/")


def _content_type(part: Part) -> str:
    """The type with its parameters, but for the two that are not the file's own."""
    params = part.params("content-type").items()
    kept = [(name, value) for name, value in params if name not in ("name", "boundary")]
    return "; ".join([part.kind, *(f"{name}={_value(value)}" for name, value in kept)])


def _value(value: str) -> str:
    return value if TOKEN.fullmatch(value) else f'"{value}"'


def _bare(content_id: str) -> str:
    return content_id.removeprefix("<").removesuffix(">")


def _refuse(defects: list[errors.MessageDefect]) -> None:
    for defect in defects:
        raise NotCarried(
            "broken", BROKEN.get(type(defect), f"it is broken ({type(defect).__name__})")
        )


def _not_carried(kind: str) -> NotCarried:
    if kind in WHY_NOT:
        return NotCarried("not_carried", f"it {WHY_NOT[kind]} ({kind})")
    return NotCarried(
        "not_carried", f"what it says is in {kind}; text/plain, text/html and files can be sent"
    )
