"""The sweep: what nobody is told of. Dead workers' turns, waits that have passed, lost bells, expired approvals."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Final

from django.db import Error
from django.db.models import Q
from django.utils import timezone

from agentturns import doorbell
from agentturns.conf import conf
from agentturns.exceptions import Conflict
from agentturns.models.clock import database_now, database_now_plus
from agentturns.models.lifecycle import after_commit, locked, swap
from agentturns.models.repricing import apply_pending
from agentturns.models.states import DECISION_REASONS, Approval, CallStatus, ParkReason, Status
from agentturns.models.sweep_mark import SweepMark
from agentturns.models.tool_call import ToolCall
from agentturns.models.turn import Turn
from agentturns.signals import tool_call_decided, turn_parked

logger = logging.getLogger("agentturns")

MARK: Final = "turns"
# One bell starts one pump, which then looks for more by itself; a few start them in as many processes.
MOST_BELLS: Final = 20
MOST_EXPIRIES: Final = 200


def sweep_if_due() -> bool:
    """Sweep, unless a worker of this database did within ``SWEEP_SECONDS``; whether this call did."""
    if not _take_mark():
        return False
    expired = expire_approvals()
    repriced = apply_pending()
    rung = ring_for_runnable()
    if expired or repriced or rung:
        logger.info("sweep rang=%s expired=%s repriced=%s", rung, expired, repriced)
    return True


def _take_mark() -> bool:
    due = SweepMark.objects.filter(
        Q(swept_at__isnull=True) | Q(swept_at__lte=database_now_plus(-conf.SWEEP_SECONDS)), name=MARK
    )
    # Looking first keeps the many that are not due from asking for SQLite's write lock.
    if not due.exists():
        if SweepMark.objects.filter(name=MARK).exists():
            return False
        SweepMark.objects.bulk_create([SweepMark(name=MARK)], ignore_conflicts=True)
    return bool(due.update(swept_at=database_now()))


def ring_for_runnable(most: int = MOST_BELLS) -> int:
    """Ring for up to ``most`` turns that a worker may take up now, those of dead workers first; how many."""
    abandoned = Turn.objects.abandoned().order_by("lease_expires_at").values_list("pk", flat=True)[:most]
    ids = list(abandoned)
    ids += Turn.objects.ready().order_by("pk").values_list("pk", flat=True)[: most - len(ids)]
    for turn_id in ids:
        doorbell.ring(turn_id)
    return len(ids)


def expire_approvals() -> int:
    """Decline the calls that nobody decided in time; how many."""
    overdue = (
        ToolCall.objects.filter(_overdue(timezone.now()))
        .order_by("expires_at")
        .values_list("pk", "turn_id", "turn__session_id")[:MOST_EXPIRIES]
    )
    expired = 0
    for call_id, turn_id, session_id in list(overdue):
        try:
            expired += _expire(call_id, turn_id, session_id)
        except (Error, Conflict) as error:
            logger.warning("turn=%s call=%s not expired yet error=%s", turn_id, call_id, type(error).__name__)
    return expired


def _overdue(now: datetime) -> Q:
    return Q(status=CallStatus.PENDING, approval=Approval.REQUIRED, expires_at__lte=now)


def _expire(call_id: int, turn_id: int, session_id: int) -> bool:
    with locked(turn_id, session_id) as turn:
        now = timezone.now()
        call = ToolCall.objects.filter(_overdue(now), pk=call_id).first()
        if call is None or turn.is_finished:
            return False
        columns = {
            "status": CallStatus.REFUSED,
            "approval": Approval.EXPIRED,
            "output_text": _told(call, _span(call.expires_at - call.gated_at)),
            "decided_at": now,
            "completed_at": now,
        }
        ToolCall.objects.filter(pk=call.pk).update(**columns)
        for name, value in columns.items():
            setattr(call, name, value)
        after_commit(tool_call_decided, turn, tool_call=call, decision="expired")
        _park_on_expiry(turn)
    logger.info("turn=%s call=%s approval expired", turn_id, call_id)
    return True


def _told(call: ToolCall, span: str) -> str:
    if call.is_question:
        return f"Not answered: nobody answered this question within {span}."
    return f"Not run: nobody approved this call within {span}."


def _park_on_expiry(turn: Turn) -> None:
    """A turn with no open decision left waits for a person still, now for a retry that goes on with the decline."""
    if turn.status != Status.PARKED or turn.park_reason not in DECISION_REASONS:
        return
    if ToolCall.objects.filter(turn=turn.pk).awaiting_decision().exists():
        return
    swap(turn, Status.PARKED, park_reason=ParkReason.APPROVAL_EXPIRED)
    after_commit(turn_parked, turn)


def _span(time: timedelta) -> str:
    seconds = time.total_seconds()
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count = round(seconds / length)
        if seconds >= length and abs(seconds - count * length) < 1:
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return f"{seconds:,.0f} seconds"
