"""Every room as an operator sees it, wide and light, narrow and dark."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import (
    NARROW,
    PATIENCE_MS,
    WIDE,
    Place,
    expect_accessible,
    expect_no_overflow,
    sign_in,
)
from tests.browser.test_first_minute import propose

LONG = {
    "action_key": "long-names",
    "to": ["a.mailbox.whose.name.is.as.long.as.it.may.be.without.end@a.long.domain.example.org"],
    "cc": [f"recipient.number.{number}@example.org" for number in range(39)],
    "subject": "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen " * 3,
    "reason": "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz",
    "html": f"<a href='https://example.net/{'y' * 300}'>{'x' * 300}</a>",
}
ROOMS = (
    "/approvals/",
    "/approvals/?view=runs",
    "/messages/",
    "/messages/?q=state:nonsense",
    "/uncertain/",
    "/dead-letters/",
    "/dead-letters/?show=closed",
    "/runs/",
    "/anomalies/",
    "/no-such-page/",
)
# Where the first link like this leads is looked at too.
BEHIND = (
    ("/approvals/", r"/messages/\d+/", ("", "edit/", "send-back/", "cancel/")),
    ("/uncertain/", r"/uncertain/\d+/", ("",)),
    ("/runs/", r"/runs/[\w-]+/", ("", "halt/")),
    ("/approvals/", r"/switches/[\w-]+/off/", ("",)),
)


@pytest.mark.parametrize(
    ("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")], ids=["wide-light", "narrow-dark"]
)
def test_every_room_is_accessible_and_keeps_within_its_width(
    browser: Browser, place: Place, size: tuple[int, int], scheme: str
) -> None:
    context = browser.new_context(
        base_url=place.url,
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    sign_in(page, place, "operator")
    number = propose(place, **LONG).json()["number"]
    long = [f"/approvals/{number}/", f"/messages/{number}/"]
    faults = {}
    for address in (*ROOMS, *long, *list(behind(page))):
        page.goto(address)
        try:
            expect_no_overflow(page)
            expect_accessible(page)
        except AssertionError as fault:
            faults[address] = str(fault)
    context.close()
    assert faults == {}


def behind(page: Page) -> Iterator[str]:
    for room, pattern, ends in BEHIND:
        page.goto(room)
        links = page.locator("a[href]").evaluate_all("all => all.map(a => a.getAttribute('href'))")
        first = next(link for link in links if re.fullmatch(pattern, link))
        yield from (first + end for end in ends)
