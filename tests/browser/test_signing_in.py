"""Joining, signing in and the people of a tenant, as a browser has them."""

import itertools
import re
from collections.abc import Iterator

import pytest
from allauth.mfa.totp.internal.auth import (
    format_hotp_value,
    hotp_value,
    yield_hotp_counters_from_time,
)
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.conftest import (
    NARROW,
    PATIENCE_MS,
    WIDE,
    Place,
    expect_accessible,
    expect_no_overflow,
    sign_in,
)

PASSWORD = "correct horse battery"
guests = itertools.count(1)


@pytest.fixture
def guest(browser: Browser, place: Place) -> Iterator[BrowserContext]:
    """A browser of somebody else."""
    context = browser.new_context(base_url=place.url)
    context.set_default_timeout(PATIENCE_MS)
    yield context
    context.close()


def invite(page: Page, role: str = "Approver") -> tuple[str, str]:
    """An address that has no account yet, and its link; by keyboard alone."""
    email = f"guest-{next(guests)}@example.org"
    page.goto("/settings/people/")
    page.get_by_label("Email").focus()
    page.keyboard.type(email)
    page.keyboard.press("Tab")
    page.keyboard.type(role)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    link = page.get_by_text(re.compile(r"^http.*/invitation/"))
    expect(link).to_be_visible()
    return email, link.inner_text()


def join(page: Page, link: str) -> None:
    page.goto(link)
    page.get_by_label("New password", exact=True).fill(PASSWORD)
    page.get_by_label("New password again").fill(PASSWORD)
    page.get_by_role("button", name="Join").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def enter(page: Page, email: str) -> None:
    page.goto("/login/")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Password").press("Enter")


def test_an_invited_person_signs_in_with_a_passkey_alone(
    page: Page, guest: BrowserContext, place: Place
) -> None:
    sign_in(page, place, "admin")
    email, link = invite(page)
    theirs = guest.new_page()
    devtools = guest.new_cdp_session(theirs)
    devtools.send("WebAuthn.enable")
    devtools.send(
        "WebAuthn.addVirtualAuthenticator",
        {
            "options": {
                "protocol": "ctap2",
                "transport": "internal",
                "hasResidentKey": True,
                "hasUserVerification": True,
                "isUserVerified": True,
                "automaticPresenceSimulation": True,
            }
        },
    )
    join(theirs, link)
    enter(theirs, email)
    theirs.goto("/account/passkeys/add/")
    theirs.get_by_label("Sign in with it alone").check()
    theirs.get_by_role("button", name="Add the passkey").click()
    expect(theirs.get_by_role("heading", name="Recovery codes")).to_be_visible()
    assert theirs.locator(".codes li").count() == 10
    guest.clear_cookies()

    theirs.goto("/login/?next=/messages/")
    theirs.get_by_role("button", name="Sign in with a passkey").click()
    expect(theirs.get_by_role("navigation", name="Main", exact=True)).to_be_visible()
    assert email in theirs.content()

    page.goto("/settings/people/")
    row = page.get_by_role("row").filter(has_text=email)
    expect(row).to_contain_text("yes")


def test_without_javascript_all_but_passkeys_works(browser: Browser, place: Place) -> None:
    context = browser.new_context(base_url=place.url, java_script_enabled=False)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    sign_in(page, place, "admin")
    page.goto("/settings/people/")
    email = f"guest-{next(guests)}@example.org"
    page.get_by_label("Email").fill(email)
    page.get_by_role("button", name="Invite", exact=True).click()
    link = page.get_by_text(re.compile(r"^http.*/invitation/")).inner_text()
    context.clear_cookies()

    join(page, link)
    enter(page, email)
    expect(page.get_by_role("navigation", name="Main", exact=True)).to_be_visible()
    expect(page.get_by_text(email).first).to_be_visible()
    page.goto("/account/app/")
    secret = page.locator("p code").inner_text()
    page.get_by_label("Six digits that the app shows").fill(code_of(secret))
    page.get_by_role("button", name="Add the app").click()
    code = page.locator(".codes li").first.inner_text()
    context.clear_cookies()

    enter(page, email)
    page.get_by_label("Code").fill(code)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation", name="Main", exact=True)).to_be_visible()
    context.close()


def code_of(secret: str) -> str:
    code: str = format_hotp_value(hotp_value(secret, next(yield_hotp_counters_from_time())))
    return code


@pytest.mark.parametrize(
    ("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")], ids=["wide-light", "narrow-dark"]
)
def test_every_page_of_them_is_accessible_and_keeps_within_its_width(
    browser: Browser, place: Place, size: tuple[int, int], scheme: str
) -> None:
    context = browser.new_context(
        base_url=place.url,
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    faults: dict[str, str] = {}
    look(page, ("/login/", "/login/password/", "/invitation/none/"), faults)
    sign_in(page, place, "admin")
    invite(page)
    page.goto("/settings/people/")
    person = page.get_by_role("link", name="approver@example.com").get_attribute("href")
    account = ("", "password/", "app/", "passkeys/", "passkeys/add/", "sessions/", "confirm/")
    rooms = ("/settings/people/", str(person), "/settings/tokens/")
    look(page, (*rooms, *(f"/account/{end}" for end in account)), faults)
    context.close()
    assert faults == {}


def look(page: Page, addresses: tuple[str, ...], faults: dict[str, str]) -> None:
    for address in addresses:
        page.goto(address)
        try:
            expect_no_overflow(page)
            expect_accessible(page)
        except AssertionError as fault:
            faults[address] = str(fault)
