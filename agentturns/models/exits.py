"""How a turn leaves its worker: one transaction that looks once more under the lock and decides."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from agentturns import doorbell
from agentturns.exceptions import LeaseLost
from agentturns.models.claims import Claim
from agentturns.models.clock import database_now_plus
from agentturns.models.lifecycle import after_commit, end_turn, locked, release_session, swap
from agentturns.models.repricing import repriced_on_leaving
from agentturns.models.states import DECISION_REASONS, ParkReason, Status
from agentturns.models.tool_call import ToolCall
from agentturns.models.turn import Turn
from agentturns.signals import turn_parked

logger = logging.getLogger("agentturns")


@dataclass(frozen=True, slots=True)
class Parked:
    """Wait for a person. ``message`` says more than the reason where there is more to say."""

    reason: str
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """The turn is over."""

    status: str
    answer: str = ""
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Yielded:
    """Back to the queue, for another slice or (``after`` seconds) another attempt."""

    after: float | None = None
    code: str = ""
    message: str = ""
    failed: bool = False


Exit = Parked | Finished | Yielded


def leave(claim: Claim, wish: Exit, **columns: Any) -> Exit | None:
    """Carry out ``wish``, or what became right meanwhile; None when the turn can go on at once instead.

    A cancel that was asked for wins over every other exit (an answer already given is kept); a park on decisions
    that have all been taken goes on instead. Prices entered while the turn ran are taken in first, so that none parks
    for the want of one that is there. ``columns`` are written with it. Raises ``LeaseLost``.
    """
    with locked(claim.turn.pk, claim.turn.session_id, savepoint=False) as turn:
        if (turn.lease_owner, turn.attempt, turn.status) != (claim.owner, claim.attempt, Status.RUNNING):
            claim.ended = True
            raise LeaseLost(f"Turn {turn.pk} is no longer held by {claim.owner} (attempt {claim.attempt}).")
        if turn.cancel_requested_at is not None:
            answer = wish.answer if isinstance(wish, Finished) else ""
            wish = Finished(Status.CANCELED, answer=answer, code="canceled", message=cancel_message(turn))
        if isinstance(wish, Parked) and wish.reason in DECISION_REASONS and not _decisions_open(turn):
            return None
        columns |= repriced_on_leaving(turn, columns)
        if isinstance(wish, Parked) and wish.reason == ParkReason.UNPRICED:
            wish = wish if columns.get("unpriced_steps", turn.unpriced_steps) else Yielded()
        elapsed = claim.elapsed()
        columns |= _columns(wish) | {
            "lease_owner": "",
            "lease_expires_at": None,
            "active_since": None,
            "stretch_seconds": turn.stretch_seconds + elapsed,
            "active_seconds": turn.active_seconds + elapsed,
        }
        if isinstance(wish, Yielded) and wish.failed:
            columns["provider_failures"] = turn.provider_failures + 1
        swap(turn, Status.RUNNING, **columns)
        release_session(turn)
        _follow_up(turn, wish)
    claim.ended = True
    _log(turn, wish)
    return wish


def _decisions_open(turn: Turn) -> bool:
    return bool(ToolCall.objects.filter(turn=turn.pk).awaiting_decision().exists())


def _columns(wish: Exit) -> dict[str, Any]:
    now = timezone.now()
    match wish:
        case Yielded(after=None):
            return {"status": Status.QUEUED, "run_after": None}
        case Yielded(after=float() | int() as seconds):
            return {
                "status": Status.QUEUED,
                "run_after": database_now_plus(seconds),
                "error_code": wish.code,
                "error_message": wish.message,
            }
        case Parked():
            return {
                "status": Status.PARKED,
                "park_reason": wish.reason,
                "parked_at": now,
                "error_code": wish.code,
                "error_message": wish.message,
            }
        case Finished():
            return {
                "status": wish.status,
                "answer": wish.answer,
                "error_code": wish.code,
                "error_message": wish.message,
                "finished_at": now,
                "tool_calls_waiting": 0,
            }
    raise AssertionError(wish)


def _follow_up(turn: Turn, wish: Exit) -> None:
    match wish:
        case Yielded(after=None):
            doorbell.ring(turn.pk)
        case Parked():
            after_commit(turn_parked, turn)
        case Finished():
            end_turn(turn)


def cancel_message(turn: Turn) -> str:
    """Who canceled the turn and why, as a sentence."""
    who = f" by {turn.acted_by}" if turn.acted_by else ""
    why = f": {turn.acted_reason}" if turn.acted_reason else ""
    return f"Canceled{who}{why}."


def _log(turn: Turn, wish: Exit) -> None:
    match wish:
        case Parked(reason=reason):
            logger.info("turn=%s parked reason=%s spent=%s", turn.pk, reason, turn.cost + turn.presumed_cost)
        case Finished(status=status, code=code):
            logger.info("turn=%s %s%s", turn.pk, status, f" code={code}" if code else "")
        case Yielded(after=after):
            logger.info("turn=%s queued%s", turn.pk, "" if after is None else f" after={after:.1f}s")
