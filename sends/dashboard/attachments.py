"""The files that an email carries, as a reader sees them: with what is odd about each."""

import base64
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from django.db.models import BinaryField
from django.db.models.functions import Substr

from sends.lifecycle.attachments import AlteredAttachment, contents_of
from sends.models import AttachmentContent, SendIntent
from sends.rules.files import HEAD, PICTURES, Oddity, kind_of, oddities_of
from sends.rules.payloads import Attachment, Message

# More than this is not written into the page that shows the HTML; it can be downloaded.
MOST_SHOWN = 8_000_000


@dataclass(frozen=True)
class File:
    """An attachment in its place, from 1; `head` are its first bytes."""

    place: int
    attachment: Attachment
    head: bytes

    @property
    def kind(self) -> str:
        """What its bytes say it is; "" where they say nothing."""
        return kind_of(self.head)

    @cached_property
    def oddities(self) -> list[Oddity]:
        return list(oddities_of(self.attachment, self.head))


def files_of(intent: SendIntent, message: Message) -> list[File]:
    """What the message carries, read as far as is needed to say what it is."""
    if not message.attachments:
        return []
    head = Substr("body", 1, HEAD, output_field=BinaryField())
    carried = AttachmentContent.objects.filter(uses__intent=intent)
    # SQLite says NULL of the beginning of nothing.
    heads = {digest: bytes(first or b"") for digest, first in carried.values_list("sha256", head)}
    return [
        File(place, one, heads.get(one.sha256, b""))
        for place, one in enumerate(message.attachments, 1)
    ]


def pictures_of(intent_id: uuid.UUID, message: Message) -> dict[str, str]:
    """The pictures that the HTML may show, as `data:` addresses by their Content-ID.

    Only what is a picture by its bytes, and of a kind that holds nothing but a picture.
    """
    named = [one for one in message.attachments if one.content_id]
    if not named or sum(one.size for one in named) > MOST_SHOWN:
        return {}
    try:
        contents = contents_of(intent_id, named)
    except AlteredAttachment:
        return {}
    return dict(_shown(named, contents))


def _shown(named: list[Attachment], contents: dict[str, bytes]) -> Iterator[tuple[str, str]]:
    for one in named:
        data = contents[one.sha256]
        if media_type := PICTURES.get(kind_of(data[:HEAD])):
            encoded = base64.b64encode(data).decode("ascii")
            yield one.content_id, f"data:{media_type};base64,{encoded}"
