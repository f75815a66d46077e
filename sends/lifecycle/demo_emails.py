"""What the demonstration's agents propose: the emails, as documents of the agents' door."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import Any

FRAME = (
    '<div style="font:15px/1.55 Arial,sans-serif;color:#1c2529;max-width:600px;padding:22px 26px">'
    '<p style="margin:0 0 18px;font-weight:bold;color:#0d5c6e;font-size:17px">Example Store</p>'
    "{body}"
    '<p style="margin:22px 0 0">{signed}<br>'
    '<span style="color:#5c6d75;font-size:13px">{foot}</span></p></div>'
)
BUTTON = (
    '<p style="margin:20px 0"><a href="{link}" style="background:#0d5c6e;color:#ffffff;'
    'padding:10px 16px;border-radius:4px;text-decoration:none;display:inline-block">{label}</a></p>'
)


def email(
    key: str,
    *,
    to: str,
    name: str = "",
    subject: str,
    paragraphs: Sequence[str],
    link: tuple[str, str] | None = None,
    signed: str = "Example Store support",
    foot: str = "Reply to this email to reach a person",
    **more: Any,
) -> dict[str, Any]:
    """A proposal whose text and HTML say the same. `link` is a label and where it leads."""
    lines = [*paragraphs, f"{link[0]}: {link[1]}"] if link else list(paragraphs)
    body = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
    if link:
        body += BUTTON.format(label=escape(link[0]), link=escape(link[1]))
    return {
        "action_key": key,
        "to": [{"name": name, "address": to}],
        "subject": subject,
        "text": "\n\n".join([*lines, f"{signed}\n{foot}"]) + "\n",
        "html": FRAME.format(body=body, signed=escape(signed), foot=escape(foot)),
        **more,
    }


def order_delay(order: str, to: str, items: str, *, hours: str) -> dict[str, Any]:
    return email(
        f"order-{order}-delay",
        to=to,
        subject=f"Your order {order}: delivery moved to Thursday",
        paragraphs=[
            "Hello,",
            (
                f"Your order {order} was due today. The carrier has moved the delivery to Thursday,"
                f" between {hours}."
            ),
            "You do not need to do anything. If Thursday does not suit you, choose another day.",
            f"In this order: {items}.",
        ],
        link=("Choose another day", f"https://carrier.example.net/reschedule?o={order}"),
        foot=f"Order {order} · reply to this email to reach a person",
        run="delays-afternoon",
        workflow="order-delays",
        template="order-delay",
        context={"order": order, "version": 7},
        reason=f"The customer asked where order {order} is. The carrier reports a delay until"
        " Thursday.",
    )


def refund(
    invoice: str, to: str, amount: str, template: str, why: str, **more: Any
) -> dict[str, Any]:
    return email(
        f"refund-{invoice}",
        to=to,
        subject=f"Refund of {amount} for invoice {invoice}",
        paragraphs=[
            "Hello,",
            f"We have refunded {amount} for invoice {invoice}: {why}.",
            (
                "The money goes back to the account you paid from. Banks need up to five working"
                " days to show it."
            ),
            (
                "If the amount is not what you expected, please answer this email before you"
                " dispute the charge with your bank."
            ),
        ],
        signed="Example Store refunds",
        foot=f"Invoice {invoice} · reply to this email to reach a person",
        run="refunds-today",
        workflow="refunds",
        template=template,
        context={"invoice": invoice, "amount": amount},
        reason=f"The refund of {amount} was booked after the return was received.",
        **more,
    )


def first_steps(key: str, to: str, subject: str, steps: Sequence[str]) -> dict[str, Any]:
    return email(
        key,
        to=to,
        subject=subject,
        paragraphs=["Hello,", "Good to have you here.", *steps],
        link=("Open your account", "https://store.example.com/account"),
        signed="Example Store",
        foot="You get this email because you opened an account",
        run="onboarding-week",
        workflow="onboarding",
        template="first-steps",
        context={"key": key},
        reason="Two days after the account was opened, nothing has been set up yet.",
    )


def welcome(number: int) -> dict[str, Any]:
    return email(
        f"welcome-{number}",
        to=f"newcomer-{number}@example.org",
        subject="Welcome to Example Store",
        paragraphs=["Hello,", "Your account is ready. Sign in with this email address."],
        link=("Sign in", "https://store.example.com/sign-in"),
        signed="Example Store",
        foot="You get this email because you opened an account",
        run="welcome-this-morning",
        workflow="onboarding",
        template="welcome",
        context={"account": number},
        reason="A new account was opened.",
    )


def appointment(number: int, to: str, when: str) -> dict[str, Any]:
    return email(
        f"appointment-{number}",
        to=to,
        subject=f"Your appointment moved to {when}",
        paragraphs=[
            "Hello,",
            f"The technician cannot come at the time we agreed on. The new time is {when}.",
            "If that does not suit you, answer this email and we will find another one.",
        ],
        run="appointments-monday",
        workflow="appointments",
        template="appointment-moved",
        context={"appointment": number},
        reason="The technician reported sick; the planner proposed the next free time.",
    )


def attached_page(filename: str, *lines: str) -> dict[str, str]:
    """A PDF of one page as an attachment."""
    shown = "T* ".join(f"({line}) Tj " for line in lines)
    text = f"BT /F 14 Tf 60 760 Td 22 TL {shown}ET"
    objects = (
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 /MediaBox [0 0 595 842] >>",
        "<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>",
        f"<< /Length {len(text)} >>\nstream\n{text}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    body, places = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(f"{len(body):010} 00000 n \n")
        body += f"{number} 0 obj\n{content}\nendobj\n"
    body += (
        f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n{''.join(places)}"
        f"trailer\n<< /Size {len(places) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    )
    return {
        "filename": filename,
        "content_type": "application/pdf",
        "content_base64": b64encode(body.encode("ascii")).decode("ascii"),
    }


# By agent, in the order in which they are proposed.
AWAITING: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "support-followup",
        email(
            "export-request-311",
            to="legal@example.org",
            subject="Re: data export request 311",
            paragraphs=[
                "Hello,",
                (
                    "Thank you for your request 311. We have collected the data of your account:"
                    " orders, invoices and messages of the last three years."
                ),
                (
                    "The export is ready. For your safety it can be downloaded once, within"
                    " 14 days, after signing in."
                ),
            ],
            link=("Download the export", "https://store.example.com/exports/311"),
            foot="Request 311 · reply to this email to reach a person",
            in_reply_to="<request-311@example.org>",
            references=["<request-311@example.org>"],
            run="inbox-today",
            workflow="privacy",
            template="data-export",
            context={"request": 311},
            reason="The export that was asked for last week is ready.",
        ),
    ),
    (
        "onboarding-nudge",
        first_steps(
            "first-steps-4410",
            "newcomer@example.com",
            "Three things to set up first",
            [
                "First, save the address you want things delivered to.",
                "Second, choose how you want to pay.",
                "Third, say which news you want from us; none at all is fine too.",
            ],
        ),
    ),
    (
        "onboarding-nudge",
        first_steps(
            "first-steps-4412",
            "office@example.net",
            "Your account: add a second person",
            [
                (
                    "If more people of your company order here, give each one an account of their"
                    " own. You can limit what each may spend."
                ),
            ],
        ),
    ),
    (
        "refund-desk",
        refund(
            "2026-0881",
            "billing@example.net",
            "1,240.00 EUR",
            "refund",
            "the shelves you returned arrived here on Monday",
            attachments=[
                attached_page(
                    "credit-note-2026-0881.pdf",
                    "Example Store",
                    "Credit note for invoice 2026-0881",
                    "4 shelves, returned: 1,240.00 EUR",
                )
            ],
        ),
    ),
    (
        "refund-desk",
        refund(
            "2026-0917",
            "customer-2290@example.org",
            "39.90 EUR",
            "small-refund",
            "the lamp arrived broken, and you do not need to send it back",
        ),
    ),
    (
        "support-followup",
        order_delay(
            "7752", "customer-4830@example.org", "1 × desk, 4 × desk leg", hours="14:00 and 18:00"
        ),
    ),
    (
        "support-followup",
        order_delay(
            "7740", "customer-4822@example.org", "1 × office chair", hours="09:00 and 13:00"
        ),
    ),
    (
        "support-followup",
        order_delay(
            "7731",
            "customer-4821@example.org",
            "2 × desk lamp, 1 × cable tray",
            hours="09:00 and 13:00",
        ),
    ),
)
ON_HOLD = (
    appointment(118, "front-desk@example.org", "Friday, 09:30"),
    appointment(121, "front-desk@example.net", "Friday, 10:15"),
)
UNCERTAIN = order_delay(
    "7718", "customer-4790@example.org", "1 × bookcase", hours="12:00 and 16:00"
)
NOT_REACHED = tuple(welcome(number) for number in (4501, 4502, 4503, 4504))
REFUSED = tuple(
    refund(invoice, to, amount, "small-refund", "the items you sent back arrived here")
    for invoice, to, amount in (
        ("2026-0902", "accounts@example.org", "64.50 EUR"),
        ("2026-0908", "ap@example.net", "18.00 EUR"),
    )
)
