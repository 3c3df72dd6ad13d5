"""Workers that die: a turn is left as it stood, and its lease has run out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F

from agentturns import Turn
from agentturns.engine.runner import run_turn
from agentturns.models.clock import database_now


class Died(BaseException):
    """Ends a run as a dying process would: nothing more is written."""


def run_until_death(turn: Turn) -> Turn:
    """Run the turn until its model or a tool raises ``Died``; the lease then ran out an hour ago."""
    with pytest.raises(Died):
        run_turn(turn.pk)
    return expire_lease(turn)


def expire_lease(turn: Turn) -> Turn:
    """Let the lease run out an hour ago, renewed for the last time when the turn was claimed."""
    Turn.objects.filter(pk=turn.pk).update(active_since=database_now() - timedelta(hours=2))
    Turn.objects.filter(pk=turn.pk).update(
        lease_renewed_at=F("active_since"), lease_expires_at=database_now() - timedelta(hours=1)
    )
    turn.refresh_from_db()
    return turn
