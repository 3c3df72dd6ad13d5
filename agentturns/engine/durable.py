"""Engine work on the database: tried again while the database is away and the lease may still hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from django.db import DatabaseError, InterfaceError, connections, transaction

from agentturns.conf import conf
from agentturns.engine.connections import is_contention, is_lost
from agentturns.exceptions import LeaseLost
from agentturns.models.claims import Claim

Result = TypeVar("Result")

_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 1.0


def insist(claim: Claim, work: Callable[[bool], Result]) -> Result:
    """Do ``work`` and return what it returns; again, after a wait, where the database was lost or locked.

    ``work`` is given True when an earlier try may have been committed without our hearing of it, so it must look
    before it writes. Raises ``LeaseLost`` when the database stays away until the lease's local deadline.
    """
    connection = connections[conf.DATABASE]
    wait, again = _FIRST_WAIT, False
    while True:
        try:
            return work(again)
        except (DatabaseError, InterfaceError) as error:
            if not (is_lost(error, connection) or is_contention(error)) or connection.in_atomic_block:
                raise
            if time.monotonic() + wait >= claim.deadline:
                raise LeaseLost(f"The database was away until the lease of turn {claim.turn.pk} ran out.") from error
        connection.close_if_unusable_or_obsolete()
        time.sleep(wait)
        wait, again = min(wait * 2, _LONGEST_WAIT), True


def durably(claim: Claim, write: Callable[[bool], Result]) -> Result:
    """:func:`insist` on ``write`` as one transaction, never inside a caller's."""

    def transact(again: bool) -> Result:
        with transaction.atomic(using=conf.DATABASE, durable=True):
            return write(again)

    return insist(claim, transact)
