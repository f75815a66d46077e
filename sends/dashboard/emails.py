"""One version of an email as a person reads it: its parts, its links, and what to look at."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from django.db.models import Exists, OuterRef

from sends.dashboard.attachments import File, files_of
from sends.models import Approval, Delivery, Payload, SendIntent, Suppression, Verdict
from sends.rules.addresses import domain_of, in_letters, normal
from sends.rules.differences import Part, compare, written
from sends.rules.lookalikes import why_mistaken
from sends.rules.markup import Link, links_in, remote_images_in
from sends.rules.payloads import Frozen, Mailbox, Message, thaw
from sends.rules.statuses import Hold, holds_in

MANY = 5  # recipients, beyond which a person should look twice
TABS = {"html": "HTML", "text": "Plain text", "changes": "Changes", "headers": "Headers"}
TABS |= {"attachments": "Attachments", "history": "History"}


@dataclass(frozen=True)
class LinkRow:
    """A link as it is listed outside the frame: where it leads, and what is odd about it."""

    words: str
    before: str
    host: str
    after: str
    leaves: bool
    shows_another: str


@dataclass(frozen=True)
class Check:
    """Something to look at before approving. Tone "bad": it cannot be approved like this."""

    tone: str
    title: str
    text: str


class Email:
    def __init__(self, intent: SendIntent) -> None:
        self.intent = intent

    @cached_property
    def frozen(self) -> Frozen | None:
        """None once the retention has deleted the body."""
        payload = Payload.objects.filter(intent=self.intent).first()
        return thaw(bytes(payload.body)) if payload is not None else None

    @property
    def message(self) -> Message | None:
        return self.frozen.message if self.frozen is not None else None

    @property
    def people(self) -> list[tuple[str, list[str]]]:
        """From, To, Cc, Bcc and Reply-To, as far as the email has them."""
        message = self.message
        if message is None:
            return [("To", [self.intent.first_recipient])]
        lines = (
            ("From", (message.sender,)),
            ("To", message.to),
            ("Cc", message.cc),
            ("Bcc", message.bcc),
            ("Reply-To", message.reply_to),
        )
        return [(label, [_in_both_forms(box) for box in boxes]) for label, boxes in lines if boxes]

    @property
    def headers(self) -> list[tuple[str, str]]:
        """What goes into the head of the email, and what only the envelope and we know."""
        frozen, message = self.frozen, self.message
        if frozen is None or message is None:
            return []
        lines = [(label, ", ".join(people)) for label, people in self.people]
        lines += [("Subject", message.subject), ("Message-ID", frozen.message_id)]
        if message.in_reply_to:
            lines.append(("In-Reply-To", message.in_reply_to))
        if message.references:
            lines.append(("References", " ".join(message.references)))
        return [*lines, *message.headers]

    @cached_property
    def links(self) -> list[LinkRow]:
        if self.message is None or self.message.html is None:
            return []
        return [self._row(link) for link in links_in(self.message.html)]

    @property
    def remote_images(self) -> int:
        if self.message is None or self.message.html is None:
            return 0
        return remote_images_in(self.message.html)

    @cached_property
    def files(self) -> list[File]:
        return files_of(self.intent, self.message) if self.message is not None else []

    def _row(self, link: Link) -> LinkRow:
        assert self.message is not None
        before, host, after = link.parted
        leaves = link.leaves(domain_of(self.message.sender.address))
        return LinkRow(link.words, before, host, after, leaves, link.shows_another)

    @cached_property
    def previous(self) -> "Email | None":
        """The version before this one, if it has one and its body is still there."""
        if self.intent.version == 1:
            return None
        earlier = SendIntent.objects.filter(
            action=self.intent.action_id, version=self.intent.version - 1
        ).first()
        if earlier is None:
            return None
        found = Email(earlier)
        return found if found.message is not None else None

    @cached_property
    def changes(self) -> list[Part]:
        """What differs from the version before."""
        if self.previous is None or self.previous.message is None or self.message is None:
            return []
        return compare(self.previous.message, self.message)

    @property
    def changed(self) -> str:
        """How much differs, in words: "3", "same"."""
        return str(sum(part.changes for part in self.changes) or "same")

    @cached_property
    def request(self) -> Approval | None:
        """The request for changes that this version answers."""
        if self.previous is None:
            return None
        asked = Approval.objects.filter(
            intent=self.previous.intent, verdict=Verdict.CHANGES, undone_at=None
        )
        return asked.select_related("person").order_by("pk").last()

    def tabs(self) -> dict[str, str]:
        """The tabs that this email has, by their key."""
        message = self.message
        if message is None:
            return {"history": TABS["history"]}
        missing = {
            key
            for key, there in (
                ("html", message.html is not None),
                ("text", message.text is not None),
                ("changes", self.previous is not None),
                ("attachments", bool(message.attachments)),
            )
            if not there
        }
        return {key: words for key, words in TABS.items() if key not in missing}

    def tab(self, asked: str) -> str:
        """The tab to show: the one asked for, else what most needs reading."""
        tabs = self.tabs()
        if asked in tabs:
            return asked
        if "changes" in tabs and self.request is not None:
            return "changes"
        return next(iter(tabs))

    def checks(self) -> list[Check]:
        """What is true now and worth a look. Whether it may be approved is asked again then."""
        return [
            *self._about_a_restore(),
            *self._about_recipients(),
            *self._about_names(),
            *self._about_domains(),
            *self._about_links(),
            *self._about_attachments(),
        ]

    def _about_a_restore(self) -> Iterator[Check]:
        if Hold.RESTORED in holds_in(self.intent.holds):
            yield Check(
                "bad",
                "It may have been sent already",
                "The database was restored from a backup. What is approved goes out only once an"
                " operator has looked at the provider and released it.",
            )

    def _about_recipients(self) -> Iterator[Check]:
        sent_before = Delivery.objects.filter(
            tenant=OuterRef("tenant"), normal=OuterRef("normal"), intent__accepted_at__isnull=False
        )
        recipients = list(self.intent.deliveries.order_by("position"))
        known = set(
            self.intent.deliveries.filter(Exists(sent_before)).values_list("normal", flat=True)
        )
        for suppression in Suppression.objects.filter(
            tenant=self.intent.tenant_id,
            normal__in=[recipient.normal for recipient in recipients],
            released_at=None,
        ):
            words = suppression.get_cause_display()
            yield Check("bad", "A recipient is suppressed", f"{suppression.normal}: {words}.")
        new = [recipient.address for recipient in recipients if recipient.normal not in known]
        if len(new) == 1:
            yield Check("wait", "First email to this address", f"Nothing was sent to {new[0]} yet.")
        elif new:
            yield Check("wait", f"First email to {len(new)} addresses", f"{_some(new)}.")
        if len(recipients) > MANY:
            yield Check("wait", f"{len(recipients)} recipients", "Each of them gets this email.")

    def _about_names(self) -> Iterator[Check]:
        boxes = (*self.message.recipients, *self.message.reply_to) if self.message else ()
        for box in boxes:
            if "@" in box.name and normal(box.name) != normal(box.address):
                said = f"It says {box.name} and belongs to {box.address}."
                yield Check("wait", "A name shows another address", said)

    def _about_domains(self) -> Iterator[Check]:
        """Those of recipients, of answers and of links that could be mistaken for others."""
        boxes = (*self.message.recipients, *self.message.reply_to) if self.message else ()
        places = [box.address for box in boxes] + [link.host for link in self.links]
        for domain in dict.fromkeys(map(domain_of, places)):
            if why := why_mistaken(domain):
                yield Check("wait", "A domain may be mistaken for another", f"{domain}: {why}.")

    def _about_links(self) -> Iterator[Check]:
        hosts = list(dict.fromkeys(link.host.lower() for link in self.links if link.leaves))
        if hosts:
            title = "A link leaves your domain" if len(hosts) == 1 else "Links leave your domain"
            yield Check("wait", title, f"To {', '.join(hosts)}.")
        for link in self.links:
            if link.shows_another:
                yield Check(
                    "wait",
                    "A link shows another address",
                    f"It says {link.shows_another} and goes to {link.host}.",
                )

    def _about_attachments(self) -> Iterator[Check]:
        beside = [file.attachment.filename for file in self.files if not file.attachment.inline]
        if beside:
            title = "An attachment" if len(beside) == 1 else f"{len(beside)} attachments"
            yield Check("wait", title, f"{_some(beside)}.")
        for file in self.files:
            for oddity in file.oddities:
                yield Check("wait", f"An attachment {oddity.what}", oddity.text)


def _in_both_forms(box: Mailbox) -> str:
    """As people write it, and where its domain is not in ASCII in its letters too."""
    letters = in_letters(box.address)
    return f"{written(box)} ({letters})" if letters else written(box)


def _some(words: list[str]) -> str:
    """The first few, and how many more: all of them stand in the head of the email."""
    more = f" and {len(words) - MANY} more" if len(words) > MANY else ""
    return ", ".join(words[:MANY]) + more
