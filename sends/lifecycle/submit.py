"""One attempt over the network, with no transaction open and nothing repeated."""

import logging
from dataclasses import dataclass

from sends.lifecycle.claim import Claimed
from sends.providers.http import Http
from sends.rules.outcomes import Happened, Outcome, Phase

logger = logging.getLogger("sends.submit")


@dataclass(frozen=True)
class Submitted:
    """An attempt and what happened to it; `final` allows no further one."""

    claimed: Claimed
    happened: Happened
    final: bool = False


def submit(claimed: Claimed, http: Http) -> Submitted:
    """Make the attempt. Never raises: whatever goes wrong is what happened."""
    if claimed.request is None:
        fault = Happened(
            phase=Phase.PREPARED, error="internal", message=claimed.fault, says=Outcome.INTERNAL
        )
        return Submitted(claimed, fault)
    try:
        happened = claimed.adapter.submit(
            claimed.request, claimed.account, http, not_after=claimed.not_after
        )
    except Exception as error:
        # Nobody can say how far it got: a fault of ours after dispatch is ambiguous.
        logger.exception("fault while submitting", extra={"attempt": claimed.attempt_id})
        happened = Happened(
            phase=Phase.SENT, error="internal", message=f"{type(error).__name__}: {error}"
        )
    return Submitted(claimed, happened)
