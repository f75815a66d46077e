"""Makes the pictures of README. Needs a Chromium and the font Inter: `make shots`."""

import re
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, expect

from tests import browsers
from tests.browser.conftest import PATIENCE_MS, Place, installed, sign_in, started

DOCS = Path(__file__).resolve().parent.parent / "docs"
SIZE = {"width": 1280, "height": 820}
SUBJECT = "Your order 7731: delivery moved to Thursday"


def main() -> None:
    chromium = browsers.chromium() or sys.exit("There is no Chromium on the path.")
    with (
        tempfile.TemporaryDirectory(prefix="outbox-shots-") as folder,
        installed(Path(folder)) as place,
        started(chromium) as browser,
    ):
        expect.set_options(timeout=PATIENCE_MS)
        for shot in (shoot_approving, shoot_uncertain):
            context = browser.new_context(base_url=place.url, viewport=SIZE, bypass_csp=True)
            shot(context.new_page(), place)
            context.close()


def shoot_approving(page: Page, place: Place) -> None:
    """An email in the inbox, and the same once it was approved and delivered."""
    sign_in(page, place, "approver")
    page.get_by_role("link", name=re.compile(SUBJECT)).first.click()
    expect(page.get_by_role("heading", name=SUBJECT)).to_be_visible()
    address = page.locator("main a[href^='/messages/']").first.get_attribute("href")
    approve = page.get_by_role("button", name=re.compile("Approve"))
    expect(approve).to_be_enabled()
    save(page, "approvals")
    approve.click()
    expect(page.locator("#undo")).to_contain_text("approved")
    page.goto(str(address))
    expect(page.locator("main .chip").first).to_have_text("Delivered")
    page.reload()
    save(page, "message")


def shoot_uncertain(page: Page, place: Place) -> None:
    sign_in(page, place, "operator")
    page.goto("/uncertain/")
    page.locator("main a[href*='/uncertain/']").first.click()
    expect(page.get_by_role("heading", name="Evidence").first).to_be_visible()
    page.set_viewport_size(SIZE | {"height": 1000})
    save(page, "uncertain")


def save(page: Page, name: str) -> None:
    """With one font for all machines, which our content policy would refuse."""
    page.add_style_tag(content=":root { --font: Inter, sans-serif }")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=DOCS / f"{name}.png")


if __name__ == "__main__":
    main()
