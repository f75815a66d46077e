"""A file in a proposal: its name, type and bytes, each checked before anything is kept of it."""

import binascii
import re
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from sends.rules.fields import Fields, Name, Within
from sends.rules.keys import sha256
from sends.rules.limits import Limits
from sends.rules.payloads import Attachment

# RFC 6838, 4.2, for the names of types and subtypes; RFC 2045, 5.1, for what may follow them.
RESTRICTED_NAME = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`{|}~-]{1,127}"
CONTENT_TYPE = re.compile(
    rf"{RESTRICTED_NAME}/{RESTRICTED_NAME}"
    rf'(?:; ?(?!(?i:name|boundary)=){TOKEN}=(?:{TOKEN}|"[ !#-\[\]-~]{{0,127}}"))*'
)
# These have parts of their own, or lead elsewhere: they are no file.
NO_FILES = re.compile(r"(?:multipart/|message/(?:partial|external-body)(?:;|$)).*", re.IGNORECASE)
# As in a Message-ID, without its angle brackets.
CONTENT_ID = re.compile(r"[\x21-\x3b\x3d\x3f-\x7e]{1,255}")
# What shows a name in another order than it has: "invoice\u202efdp.exe" reads "invoiceexe.pdf".
TURNS_A_LINE = re.compile("[\u202a-\u202e\u2066-\u2069]")


def _file_name(value: str) -> str:
    if found := TURNS_A_LINE.search(value):
        raise PydanticCustomError(
            "file_name",
            "holds {character}, which shows a name in another order than it has; leave it out",
            {"character": f"U+{ord(found[0]):04X}"},
        )
    if "/" in value or "\\" in value:
        raise PydanticCustomError("file_name", "give the name alone, without / and \\")
    if not value.strip(" ."):
        raise PydanticCustomError("file_name", "give a name of more than spaces and dots")
    return value


def _content_type(value: str) -> str:
    if not CONTENT_TYPE.fullmatch(value) or NO_FILES.fullmatch(value):
        raise PydanticCustomError(
            "content_type",
            "give the media type of a file, such as application/pdf or text/plain; charset=utf-8,"
            " without the parameters name and boundary",
        )
    return value


def _content_id(value: str) -> str:
    if not CONTENT_ID.fullmatch(value):
        raise PydanticCustomError(
            "content_id",
            "give 1 to 255 printable characters of ASCII without spaces and angle brackets, as in"
            " logo@example.com",
        )
    return value


def _decoded(value: Any) -> bytes:
    """Base64 of RFC 4648, section 4: what one reader might take differently is none."""
    if not isinstance(value, str):
        raise PydanticCustomError("wrong_type", "give a string in base64")
    try:
        data = binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        raise NOT_BASE64 from None
    # Bits of the last group that belong to no byte could be anything, and spell it in two ways.
    last = data[len(data) - (len(data) - 1) % 3 - 1 :] if data else b""
    if binascii.b2a_base64(last, newline=False).decode() != value[-4:]:
        raise NOT_BASE64
    return data


NOT_BASE64 = PydanticCustomError(
    "base64",
    "is not base64 as RFC 4648 has it in section 4: A-Z a-z 0-9 + /, padded with =, no line breaks",
)

FileName = Annotated[Name, AfterValidator(_file_name)]
ContentType = Annotated[str, Field(max_length=255), AfterValidator(_content_type)]
ContentId = Annotated[str, AfterValidator(_content_id)]
Content = Annotated[
    bytes,
    BeforeValidator(_decoded),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]


EXAMPLE = {
    "filename": "receipt.pdf",
    "content_type": "application/pdf",
    "content_base64": "JVBERi0xLjcK",
}


class Attached(Fields):
    """A file with its bytes."""

    filename: FileName = Field(description="The name alone, without a folder.")
    content_type: ContentType = Field(description="Its media type: `application/pdf`.")
    content_base64: Content = Field(
        description="Its bytes in base64 (RFC 4648, section 4). Empty for an empty file."
    )
    content_id: ContentId | None = Field(
        None, description="A name by which `html` shows it, as in `cid:logo@example.com`."
    )
    inline: bool = Field(
        False, description="Part of `html` rather than a file beside it; needs `content_id`."
    )

    @cached_property
    def attachment(self) -> Attachment:
        """What the email says of it; its bytes are kept apart."""
        return Attachment(
            filename=self.filename,
            content_type=self.content_type,
            size=len(self.content_base64),
            sha256=sha256(self.content_base64),
            content_id=self.content_id or "",
            inline=self.inline,
        )


def _measured(value: Any, info: ValidationInfo[Limits]) -> Any:
    """Measures what is sure not to fit before any of it is decoded."""
    members = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    encoded = [one.get("content_base64") for one in members]
    most = info.context.message
    if sum(len(text) for text in encoded if isinstance(text, str)) > most:
        raise PydanticCustomError(
            "too_large",
            "at most {most} bytes are allowed in all, counted in base64",
            {"most": most},
        )
    return value


Attachments = Annotated[list[Attached], BeforeValidator(_measured), Within("attachments")]
