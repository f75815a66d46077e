"""The newcomer's first minute: propose as an agent, approve as support staff, see it delivered."""

import re
from datetime import UTC, datetime, timedelta

import requests
from playwright.sync_api import Page, expect

from tests.browser.conftest import (
    NARROW,
    Place,
    expect_accessible,
    expect_no_overflow,
    sign_in,
)

SUBJECT = "Your order 7801: delivery moved to Friday"
PROPOSAL = {
    "action_key": "order-7801-delayed",
    "to": ["delivered@example.org"],
    "subject": SUBJECT,
    "text": "The carrier has moved the delivery to Friday.",
    "reason": "The customer asked where the order is.",
}


def propose(place: Place, **changes: object) -> requests.Response:
    return requests.post(
        f"{place.url}/api/v1/intents",
        json={**PROPOSAL, **changes},
        headers={"Authorization": f"Bearer {place.agent_token}"},
        timeout=30,
    )


def accepted_by_the_sandbox(place: Place, intent_id: str) -> int:
    journal = requests.get(f"{place.sandbox_url}/v1/journal?limit=1000", timeout=30).json()
    tag = intent_id.replace("-", "")
    return sum(message["tag"] == tag for message in journal["messages"])


def test_a_newcomer_proposes_approves_and_watches_it_being_delivered_once(
    page: Page, place: Place
) -> None:
    first, again = propose(place), propose(place)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert again.json()["replayed"] is True
    number = first.json()["number"]

    page.goto("/")
    expect_accessible(page)
    sign_in(page, place, "approver")
    expect_accessible(page)

    page.get_by_role("link", name=re.compile(re.escape(SUBJECT))).last.click()
    expect(page.get_by_role("heading", name=SUBJECT)).to_be_visible()
    expect(page.get_by_text("The customer asked where the order is.")).to_be_visible()
    expect_accessible(page)

    page.get_by_role("button", name=re.compile("Approve")).click()
    expect(page.locator("#undo")).to_contain_text(f"#{number} approved")
    expect_accessible(page)

    page.goto(f"/messages/{number}/")
    expect(page.locator("main .chip").first).to_have_text("Delivered")
    expect_accessible(page)
    assert accepted_by_the_sandbox(place, first.json()["id"]) == 1

    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    expect_no_overflow(page)
    expect_accessible(page)


def test_a_press_before_the_email_can_have_been_read_decides_nothing(
    page: Page, place: Place
) -> None:
    number = propose(place, action_key="order-7734-delayed", subject="Too soon").json()["number"]
    sign_in(page, place, "approver")
    # The page's clock stands still, so that no machine is too slow for this.
    page.clock.install()
    page.clock.pause_at(datetime.now(UTC) + timedelta(minutes=1))
    page.goto(f"/approvals/{number}/")
    approve = page.get_by_role("button", name=re.compile("Approve"))
    expect(approve).to_be_disabled()

    approve.dispatch_event("click")
    page.keyboard.press("a")

    expect(page.get_by_role("status")).to_contain_text("Not yet")
    expect(page.locator("#undo")).to_have_count(0)
    page.clock.run_for(600)
    page.clock.resume()
    approve.click()
    expect(page.locator("#undo")).to_contain_text(f"#{number} approved")


def test_the_same_minute_by_keyboard_alone(page: Page, place: Place) -> None:
    answer = propose(place, action_key="order-7732-delayed", subject="By keyboard alone")
    number = answer.json()["number"]
    sign_in(page, place, "approver")
    page.goto(f"/approvals/{number}/")
    expect(page.get_by_role("heading", name="By keyboard alone")).to_be_visible()

    expect(page.get_by_role("button", name=re.compile("Approve"))).to_be_enabled()
    page.keyboard.press("a")
    expect(page.locator("#undo")).to_contain_text(f"#{number} approved")
    # Where HTMX puts the focus it has taken over what is new on the page.
    expect(page.locator("#subject")).to_be_focused()
    page.keyboard.press("z")
    expect(page.get_by_role("status")).to_have_text(f"#{number} awaits approval again.")
    expect(page.locator("main .chip").first).to_have_text("Awaiting approval")
    assert accepted_by_the_sandbox(place, answer.json()["id"]) == 0


def test_it_works_without_scripts(browser: object, place: Place) -> None:
    answer = propose(place, action_key="order-7733-delayed", subject="Without scripts")
    number = answer.json()["number"]
    context = browser.new_context(base_url=place.url, java_script_enabled=False)  # type: ignore[attr-defined]
    page = context.new_page()
    sign_in(page, place, "approver")

    page.goto(f"/approvals/{number}/")
    page.get_by_role("button", name=re.compile("Approve")).click()

    expect(page.locator("#undo")).to_contain_text(f"#{number} approved")
    context.close()
