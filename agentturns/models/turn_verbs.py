"""What people do to a turn: raise, lower, cancel, retry. Every surface calls these."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from asgiref.sync import sync_to_async
from django.utils import timezone

from agentturns.cleaning import clean_text
from agentturns.definitions.limits import CAPS
from agentturns.exceptions import Conflict
from agentturns.models.audit import local_time, log_change, name_of, require_permission
from agentturns.models.lifecycle import after_commit, end_turn, locked, release_session, requeue, swap
from agentturns.models.states import BUDGET_REASONS, RETRY_REASONS, CallStatus, ParkReason, Status
from agentturns.money.budget import check_lower, check_raise
from agentturns.signals import budget_raised, turn_resumed

if TYPE_CHECKING:
    from agentturns.models.turn import Turn


class TurnVerbs:
    """Mixed into ``Turn``. With ``by`` a verb asks that user's permission; ``by=None`` is trusted code.

    Each returns the turn, refreshed. Each raises ``Conflict``, and changes nothing, when the turn is in another
    state or somebody else was first.
    """

    def raise_budget(self, *, by: Any = None, reason: str = "", **caps: Any) -> Self:
        """Set higher caps on this turn alone and resume it: ``turn.raise_budget(max_cost="0.50", by=user)``.

        For a turn parked or failed by a budget. ``caps`` are absolute: ``max_cost`` in USD (``Decimal``, ``int`` or
        text), tokens and counts as ``int``, ``timeout`` in seconds, ``unpriced="allow"``. Together they must clear
        every breach. Raises ``InvalidBudget`` or ``PermissionDenied``.
        """
        require_permission(by, "raise_budget", "raise a budget")
        with self._locked() as turn:
            before = turn.status
            if not (turn.budget_parked or _failed_on_budget(turn)):
                raise _conflict(turn, "is not waiting for a budget, so there is nothing to raise")
            if before == Status.FAILED:
                _require_latest(turn)
            changes = check_raise(turn, caps)
            _record(turn, changes, by, reason)
            requeue(turn, before, **_overridden(turn, changes), **_acted(by, reason))
            _log_budget(turn, "Raised", changes, by, reason)
            after_commit(budget_raised, turn, changes=changes, by=by)
            after_commit(turn_resumed, turn)
        return self._refreshed()

    def lower_budget(self, *, by: Any = None, reason: str = "", **caps: Any) -> Self:
        """Set lower caps on this turn, not below what is spent; they count from its next boundary on.

        For any unfinished turn. Raises ``InvalidBudget`` or ``PermissionDenied``.
        """
        require_permission(by, "raise_budget", "lower a budget")
        with self._locked() as turn:
            if turn.is_finished:
                raise _conflict(turn, "is over, so its budget cannot be lowered")
            changes = check_lower(turn, caps)
            _record(turn, changes, by, reason)
            swap(turn, turn.status, **_overridden(turn, changes))
            _log_budget(turn, "Lowered", changes, by, reason)
        return self._refreshed()

    def cancel(self, *, by: Any = None, reason: str = "") -> Self:
        """End the turn: at once where it waits, at its next boundary where it runs. Open calls are settled."""
        require_permission(by, "cancel_turn", "cancel a turn")
        with self._locked() as turn:
            if turn.is_finished or turn.cancel_requested_at is not None:
                raise _conflict(turn, "is over or being canceled already")
            now = timezone.now()
            if turn.status == Status.RUNNING:
                swap(turn, Status.RUNNING, cancel_requested_at=now, **_acted(by, reason))
            else:
                self._cancel_now(turn, now, by, reason)
            log_change(by, turn, f"Canceled. {clean_text(reason)}".strip())
        return self._refreshed()

    def _cancel_now(self, turn: Turn, now: Any, by: Any, reason: str) -> None:
        from agentturns.models.exits import cancel_message

        acted = _acted(by, reason)
        turn.acted_by, turn.acted_reason = acted["acted_by"], acted["acted_reason"]
        swap(
            turn,
            turn.status,
            status=Status.CANCELED,
            park_reason="",
            cancel_requested_at=now,
            finished_at=now,
            tool_calls_waiting=0,
            run_after=None,
            error_code="canceled",
            error_message=cancel_message(turn),
            **acted,
        )
        release_session(turn)
        end_turn(turn)

    def retry(self, *, by: Any = None, reason: str = "") -> Self:
        """Resume a turn that parked on a fault, or a failed one, where it stopped.

        A turn parked on a budget takes ``raise_budget`` and one parked on a decision takes that decision.
        """
        require_permission(by, "retry_turn", "retry a turn")
        with self._locked() as turn:
            before = turn.status
            if before == Status.FAILED:
                _require_latest(turn)
            elif before != Status.PARKED or turn.park_reason not in RETRY_REASONS:
                way = "; raise its budget instead" if turn.budget_parked else ""
                raise _conflict(turn, f"is not parked on a fault or failed, so there is nothing to retry{way}")
            if turn.park_reason == ParkReason.TOOL_LOOP:
                _let_repeat(turn)
            requeue(turn, before, **_acted(by, reason))
            log_change(by, turn, f"Retried. {clean_text(reason)}".strip())
            after_commit(turn_resumed, turn)
        return self._refreshed()

    async def araise_budget(self, **options: Any) -> Self:
        """Async twin of :meth:`raise_budget`."""
        return await sync_to_async(self.raise_budget)(**options)

    async def alower_budget(self, **options: Any) -> Self:
        """Async twin of :meth:`lower_budget`."""
        return await sync_to_async(self.lower_budget)(**options)

    async def acancel(self, **options: Any) -> Self:
        """Async twin of :meth:`cancel`."""
        return await sync_to_async(self.cancel)(**options)

    async def aretry(self, **options: Any) -> Self:
        """Async twin of :meth:`retry`."""
        return await sync_to_async(self.retry)(**options)

    def _locked(self: Any) -> Any:
        return locked(self.pk, self.session_id)

    def _refreshed(self: Any) -> Any:
        self.refresh_from_db()
        return self


def _failed_on_budget(turn: Turn) -> bool:
    return turn.status == Status.FAILED and turn.error_code in BUDGET_REASONS | {"tool_limit"}


def _require_latest(turn: Turn) -> None:
    """A failed turn stays failed once the conversation has gone on without it."""
    from agentturns.models.turn import Turn as Turns

    later = Turns.objects.filter(session=turn.session_id, index__gt=turn.index, attempt__gt=0).order_by("index").first()
    if later is not None:
        raise Conflict(
            f"Turn {turn.pk} failed and turn {later.pk} of the same session has been taken up since, "
            "so it cannot go on; send the request again.",
            status=turn.status,
        )


def _let_repeat(turn: Turn) -> None:
    """The call that repeats too often may run once more."""
    from agentturns.models.tool_call import ToolCall

    repeating = (
        ToolCall.objects.filter(turn=turn.pk, status=CallStatus.PENDING, approval="").order_by("position").first()
    )
    if repeating is not None:
        ToolCall.objects.filter(pk=repeating.pk).update(repeat_allowed=True)


def _conflict(turn: Turn, what: str) -> Conflict:
    state = turn.status + (f" ({turn.park_reason})" if turn.park_reason else "")
    who = f"; {turn.acted_by} acted on it" if turn.acted_by else "; trusted code acted on it" if turn.acted_at else ""
    at = f" at {local_time(turn.acted_at)}" if turn.acted_at else ""
    return Conflict(
        f"Turn {turn.pk} is {state} and {what}{who}{at}.", status=turn.status, by=turn.acted_by, at=turn.acted_at
    )


def _acted(by: Any, reason: str) -> dict[str, Any]:
    return {"acted_by": name_of(by), "acted_at": timezone.now(), "acted_reason": clean_text(reason)}


def _overridden(turn: Turn, changes: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    new = {cap: str(value) if isinstance(value, Decimal) else value for cap, (_, value) in changes.items()}
    return {"budget_overrides": {**turn.budget_overrides, **new}}


def _record(turn: Turn, changes: dict[str, tuple[Any, Any]], by: Any, reason: str) -> None:
    from agentturns.models.budget_change import BudgetChange

    now = timezone.now()
    BudgetChange.objects.bulk_create(
        BudgetChange(
            turn_id=turn.pk,
            cap=cap,
            old="" if old is None else str(old),
            new=str(new),
            by=by,
            by_name=name_of(by),
            reason=clean_text(reason),
            at=now,
        )
        for cap, (old, new) in changes.items()
    )


def _log_budget(turn: Turn, verb: str, changes: dict[str, tuple[Any, Any]], by: Any, reason: str) -> None:
    moves = ", ".join(f"{cap} from {_shown(cap, old)} to {_shown(cap, new)}" for cap, (old, new) in changes.items())
    log_change(by, turn, f"{verb} {moves}. {clean_text(reason)}".strip())


def _shown(cap: str, value: Any) -> str:
    return "no limit" if value is None else CAPS[cap].show(value) if cap in CAPS else str(value)
