"""Action keys and idempotency keys: names that never change meaning."""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

ACTION_KEY = re.compile(r"[A-Za-z0-9_.:-]{1,255}")
ACTION_KEY_RULE = "1 to 255 of the characters A-Z a-z 0-9 _ . : -"


def canonical(value: Any) -> bytes:
    """JSON with one spelling: sorted keys, no white space, UTF-8, no NaN. What digests are over."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def derived_action_key(
    *, run: str, template: str, context_hash: str, recipients: Iterable[str]
) -> str:
    """The action key of a proposal that brought none: the same proposal, the same key."""
    facts = [run, template, context_hash, sorted(address.casefold() for address in recipients)]
    return f"derived:{sha256(canonical(facts))[:40]}"


def idempotency_key(
    *,
    tenant: str,
    action_key: str,
    version: int,
    run: str,
    recipients: Iterable[str],
    template: str,
    context_hash: str,
) -> str:
    """The identity given to the provider, the same on every attempt and for ever.

    40 hexadecimal digits: every provider's key format takes them. Nothing of a clock, a dice or
    an attempt number goes in.
    """
    facts = {
        "tenant": tenant,
        "action_key": action_key,
        "version": version,
        "run": run,
        "recipients": sorted(recipients),
        "template": template,
        "context_hash": context_hash,
    }
    return sha256(canonical(facts))[:40]
