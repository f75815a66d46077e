"""The kept answer of a deciding form: sent twice, it decides once."""

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from sends.lifecycle.refusals import Invalid, Refused
from sends.models import ActionResult, Person

Result = dict[str, Any]


def once(
    person: Person, action_id: uuid.UUID, verb: str, now: datetime, do: Callable[[], Result]
) -> tuple[Result, bool]:
    """What `do` answered the first time, and whether this is a repeat.

    The answer is kept in the transaction that decides. Of two at once the second waits and gets
    the answer of the first. A refusal is not kept: what it left in the ledger is committed, and
    the form may be sent again.
    """
    refused: Refused | None = None
    with transaction.atomic():
        row = _reserve(person, action_id, verb, now)
        if row is None:
            return _kept(person, action_id, verb), True
        try:
            row.result = do()
        except Refused as refusal:
            refused = refusal
            row.delete()
        else:
            row.save(update_fields=["result"])
    if refused is not None:
        raise refused
    return row.result, False


def _reserve(person: Person, action_id: uuid.UUID, verb: str, now: datetime) -> ActionResult | None:
    """The row of this form, or None where it is there: inserting waits for who is inserting it."""
    if ActionResult.objects.filter(person=person, action_id=action_id).exists():
        return None
    try:
        with transaction.atomic():
            row: ActionResult = ActionResult.objects.create(
                person=person, action_id=action_id, verb=verb, made_at=now
            )
            return row
    except IntegrityError:
        return None


def _kept(person: Person, action_id: uuid.UUID, verb: str) -> Result:
    kept = ActionResult.objects.get(person=person, action_id=action_id)
    if kept.verb != verb:
        raise Invalid(f"This form decided something else before: {kept.verb}. Load the page anew.")
    result: Result = kept.result
    return result
