"""What a provider promises about a repeated request, in words; unknown is said to be unknown."""

from collections.abc import Iterator
from dataclasses import dataclass

from sends.dashboard.window import in_hours
from sends.rules.contracts import ASSUMED_WINDOW, Contract, Recovery
from sends.templatetags.outbox import in_words


@dataclass(frozen=True)
class Promise:
    """One fact; without `words` it is not documented, and `then` says what follows from that."""

    about: str
    words: str = ""
    then: str = ""


def promises_of(contract: Contract) -> list[Promise]:
    return [*_about_keys(contract), *_about_finding(contract)]


def _about_keys(contract: Contract) -> Iterator[Promise]:
    yield Promise(
        "Same key, same email",
        contract.same_key_same_request or "",
        "so a second request could send a second email",
    )
    yield Promise("Same key, changed email", contract.same_key_other_request or "")
    yield _window(contract)
    yield Promise(
        "Two requests at once", contract.two_at_once or "", "so we wait before we send again"
    )
    if contract.recovery is Recovery.ONE_SHOT:
        yield Promise("A prepared draft", "can be sent once; a sent draft cannot be sent twice")


def _window(contract: Contract) -> Promise:
    about = "Key is kept"
    if contract.window is None:
        assumed = f"so we assume {in_words(ASSUMED_WINDOW.total_seconds())}"
        return Promise(about, "", assumed if contract.may_replay else "")
    span = in_hours(contract.window)
    since = f", from {contract.window_from}" if contract.window_from else ""
    where = f", per {contract.scope}" if contract.scope else ""
    return Promise(about, f"{span}{since}{where}")


def _about_finding(contract: Contract) -> Iterator[Promise]:
    yield Promise(
        "Our Message-ID is kept",
        {True: "Yes", False: "No: it is replaced", None: ""}[contract.message_id_kept],
        "so it proves nothing here",
    )
    yield Promise("Our label is carried by", contract.tag_carrier or "")
    yield Promise(
        "It can be asked",
        "Yes, by our key or label" if contract.has_look_up else "No",
    )
    nothing = ", ".join(str(status) for status in sorted(contract.took_nothing))
    yield Promise("Answers that mean nothing was taken", nothing)
