"""How long to wait before a failed model call is tried again, and when to stop trying."""

from __future__ import annotations

import random
from typing import Final

from agentturns.conf import conf
from agentturns.models.exits import Exit, Parked, Yielded
from agentturns.models.states import ParkReason
from agentturns.providers.base import Fault, ProviderError

FIRST_WAIT_SECONDS: Final = 1.0


def after_fault(error: ProviderError, failures: int) -> Exit:
    """Wait, or park: ``failures`` is how many attempts in a row have failed, this one included."""
    message = str(error)
    if error.fault in (Fault.PERMANENT, Fault.SPEND_LIMIT):
        return Parked(ParkReason.PROVIDER_ERROR, code=error.code or error.fault, message=message)
    if failures >= conf.PROVIDER_ATTEMPTS:
        said = f"{message} {failures} attempt{'s' if failures != 1 else ''} failed."
        return Parked(ParkReason.PROVIDER_ERROR, code=error.code or error.fault, message=said)
    asked = error.retry_after or 0.0
    if asked > conf.RETRY_CEILING_SECONDS:
        said = (
            f"{message} It asks to wait {asked:,.0f} seconds, above the ceiling of {conf.RETRY_CEILING_SECONDS:,.0f}."
        )
        return Parked(ParkReason.PROVIDER_ERROR, code=error.code or error.fault, message=said)
    # Jitter only lengthens the wait: the provider's Retry-After is a minimum.
    wait = max(asked, FIRST_WAIT_SECONDS * 2 ** (failures - 1)) * random.uniform(1.0, 1.25)
    return Yielded(min(conf.RETRY_CEILING_SECONDS, wait), code=error.code or error.fault, message=message, failed=True)
