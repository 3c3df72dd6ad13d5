"""The ground under every transition: the locks, the compare-and-swap, what follows a commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.dispatch import Signal
from django.utils import timezone

from agentturns import doorbell
from agentturns.conf import conf
from agentturns.exceptions import Conflict
from agentturns.models.session import Session
from agentturns.models.states import Approval, CallStatus, Status
from agentturns.signals import turn_finished

if TYPE_CHECKING:
    from agentturns.models.turn import Turn


@contextmanager
def locked(turn_id: int, session_id: int, *, savepoint: bool = True) -> Iterator[Turn]:
    """One transaction that holds the session's row, then the turn's; gives the turn as it stands under the lock.

    Inside a caller's transaction a failure undoes only this part of it, unless ``savepoint`` is False.
    """
    from agentturns.models.turn import Turn

    with transaction.atomic(using=conf.DATABASE, savepoint=savepoint):
        Session.objects.select_for_update(no_key=True).filter(pk=session_id).values_list("pk").first()
        turn = Turn.objects.select_for_update(no_key=True).filter(pk=turn_id).first()
        if turn is None:
            raise Conflict(f"Turn {turn_id} does not exist any more.", status="deleted")
        yield turn


def swap(turn: Turn, expected: str, **columns: Any) -> None:
    """Write ``columns`` if the turn is still in the state ``expected``, else raise ``Conflict``."""
    from agentturns.models.turn import Turn

    if not Turn.objects.filter(pk=turn.pk, status=expected, attempt=turn.attempt).update(**columns):
        raise Conflict(f"Turn {turn.pk} was changed by somebody else at this moment; look again.", status=turn.status)
    for name, value in columns.items():
        setattr(turn, name, value)


def after_commit(signal: Signal, turn: Turn, **fields: Any) -> None:
    """Send ``signal`` once this transaction is committed; a receiver that raises changes nothing."""
    from agentturns.models.turn import Turn

    transaction.on_commit(
        partial(signal.send_robust, sender=Turn, turn=turn, **fields), using=conf.DATABASE, robust=True
    )


def requeue(turn: Turn, expected: str, **columns: Any) -> None:
    """Put the turn back in the queue and ring for it. A person's resume starts a fresh stretch of the clock."""
    swap(
        turn,
        expected,
        status=Status.QUEUED,
        answer="",
        stretch_seconds=0.0,
        crashes=0,
        provider_failures=0,
        park_reason="",
        error_code="",
        error_message="",
        parked_at=None,
        finished_at=None,
        run_after=None,
        **columns,
    )
    doorbell.ring(turn.pk)


def settle_open_calls(turn: Turn, why: str) -> None:
    """Give every open call of a turn that ends an output, so that the session's history stays whole."""
    from agentturns.models.tool_call import ToolCall

    now = timezone.now()
    for call in ToolCall.objects.filter(turn=turn.pk).open():
        known = call.status == CallStatus.PENDING
        ToolCall.objects.filter(pk=call.pk).update(
            status=CallStatus.REFUSED if known else CallStatus.FAILED,
            approval=Approval.DECLINED if call.approval == Approval.REQUIRED else call.approval,
            output_text=f"Not run: {why}" if known else f"Outcome unknown: {why}",
            run_token="",
            completed_at=now,
        )


def ring_next(turn: Turn) -> None:
    """Ring for the session's next queued turn, which a finished one has let through."""
    from agentturns.models.turn import Turn

    following = (
        Turn.objects.filter(session=turn.session_id, index__gt=turn.index, status__in=Status.unfinished())
        .order_by("index")
        .values_list("pk", "status")
        .first()
    )
    if following and following[1] == Status.QUEUED:
        doorbell.ring(following[0])


def end_turn(turn: Turn) -> None:
    """What the end of a turn does beside its own row: no call stays open, no message is lost, the next turn goes on."""
    from agentturns.models.queueing import promote

    settle_open_calls(turn, f"the turn ended ({turn.status}).")
    after_commit(turn_finished, turn)
    promote(turn)
    ring_next(turn)


def release_session(turn: Turn) -> None:
    """Let the session's next turn be claimed."""
    Session.objects.filter(pk=turn.session_id, active_turn=turn.pk).update(active_turn=None)
