"""What an HTML body leads to and loads, read as a browser reads it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import unescape
from urllib.parse import unquote, urlsplit

from publicsuffixlist import PublicSuffixList
from selectolax.lexbor import LexborHTMLParser, LexborNode

# What browsers drop from an address before they follow it.
DROPPED = re.compile("[\t\n\r]")
REMOTE = re.compile(r"\s*(?:https?:)?[/\\]{2}", re.IGNORECASE)
CSS_URL = re.compile(r"url\(\s*['\"]?\s*(?:https?:)?//", re.IGNORECASE)
CID = re.compile(
    r"""(?P<before>(?:\b(?:src|background)\s*=|url\()\s*(?:["']\s*)?)cid:(?P<id>[^\s"'<>)]+)""",
    re.IGNORECASE,
)
SHOWN_ADDRESS = re.compile(
    r"(?:https?://)?(?:www\.)?((?:[a-z0-9-]+\.)+[a-z]{2,})(?:[/?#:].*)?", re.IGNORECASE
)


@dataclass(frozen=True)
class Link:
    """Where a link leads, and the words it is hidden behind; `host` is "" for none of the web."""

    words: str
    address: str
    host: str

    @property
    def parted(self) -> tuple[str, str, str]:
        """The address before its host, the host as it is written, and what follows it."""
        start = self.address.lower().rfind(self.host, 0, _end_of_authority(self.address))
        if not self.host or start < 0:
            return self.address, "", ""
        end = start + len(self.host)
        return self.address[:start], self.address[start:end], self.address[end:]

    @property
    def shows_another(self) -> str:
        """The host that the words show, if they show an address that is not where it leads."""
        shown = SHOWN_ADDRESS.fullmatch(self.words.strip())
        if shown is None or not self.host:
            return ""
        host = shown[1].lower()
        return "" if self.host.removeprefix("www.") == host else host

    def leaves(self, domain: str) -> bool:
        """Whether it leads to a host that somebody else than the owner of the domain may own."""
        return bool(self.host) and owned(self.host) != owned(domain)


def with_pictures(body: str, pictures: Mapping[str, str], *, most: int) -> str:
    """The body with each picture in the place of its `cid:` address; `pictures` by Content-ID.

    At most so many characters of pictures, however often one is named: the rest stays as it is.
    """
    left = most

    def shown(found: re.Match[str]) -> str:
        nonlocal left
        picture = pictures.get(unquote(unescape(found["id"])))
        if picture is None or len(picture) > left:
            return found[0]
        left -= len(picture)
        return found["before"] + picture

    return CID.sub(shown, body) if pictures else body


def owned(host: str) -> str:
    """The part of a host's name that was registered: "example.co.uk" of "shop.example.co.uk"."""
    return public_suffixes().privatesuffix(host) or host


@cache
def public_suffixes() -> PublicSuffixList:
    return PublicSuffixList()


def links_in(html: str) -> list[Link]:
    """Every link, image map area and form of a body, in order."""
    tree = LexborHTMLParser(html)
    return [_link(node) for node in tree.css("a[href], area[href], form[action]")]


def remote_images_in(html: str) -> int:
    """How many pictures a mail program would fetch: those of elements, and of styles."""
    tree = LexborHTMLParser(html)
    attributes = [
        value or ""
        for node in tree.css("img, input, video, table, td, th, body, image")
        for name, value in node.attributes.items()
        if name in ("src", "srcset", "background", "poster", "href", "xlink:href")
    ]
    styles = [node.attributes.get("style") or "" for node in tree.css("[style]")]
    styles += [node.text() for node in tree.css("style")]
    return sum(bool(REMOTE.match(value)) for value in attributes) + sum(
        len(CSS_URL.findall(style)) for style in styles
    )


def _link(node: LexborNode) -> Link:
    name = "action" if node.tag == "form" else "href"
    address = DROPPED.sub("", node.attributes.get(name) or "").strip()
    return Link(_words(node), address, host_of(address))


def _words(node: LexborNode) -> str:
    if node.tag == "form":
        return "A form sends what is typed to"
    images = [image.attributes.get("alt") or "" for image in node.css("img")]
    words = " ".join([node.text(deep=True), *images, node.attributes.get("alt") or ""])
    return " ".join(words.split())


def host_of(address: str) -> str:
    """The host that a browser would ask, in lower case; "" where it would ask none."""
    scheme = address.partition(":")[0].lower()
    if scheme in ("http", "https") or address.startswith(("//", "\\\\", "/\\", "\\/")):
        # To a browser a backslash is a slash: what follows it is not the host.
        address = address.replace("\\", "/")
    elif scheme != "ftp":
        return ""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _end_of_authority(address: str) -> int:
    """Where the part with the host ends: at the first slash, question mark or hash after it."""
    start = re.match(r"(?:[a-z]+:)?[/\\]*", address, re.IGNORECASE)
    found = re.compile(r"[/\\?#]").search(address, start.end() if start else 0)
    return found.start() if found else len(address)
