"""What people do to a tool call: approve, decline, answer; in doubt: rerun, confirm. Every surface calls these."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from asgiref.sync import sync_to_async
from django.utils import timezone

from agentturns.cleaning import clean_text, require_json
from agentturns.exceptions import Conflict
from agentturns.models.audit import local_time, log_change, name_of, require_consent, require_permission
from agentturns.models.lifecycle import after_commit, locked, requeue
from agentturns.models.shown import shown_to_model
from agentturns.models.states import DECISION_REASONS, Approval, CallStatus, Status
from agentturns.signals import tool_call_decided, turn_resumed

if TYPE_CHECKING:
    from agentturns.models.tool_call import ToolCall
    from agentturns.models.turn import Turn


class CallVerbs:
    """Mixed into ``ToolCall``. With ``by`` a verb asks that user's permission; ``by=None`` is trusted code.

    Each returns the call, refreshed, and resumes the turn when its last open decision is taken. Each raises
    ``Conflict``, and changes nothing, when the call is decided already or waits for something else.
    """

    def approve(self, *, by: Any = None, note: str = "") -> Self:
        """Let this very call run, with the arguments shown."""
        with self._deciding("approved", by, _asks_permission) as decision:
            # Without a note of the person's, why a failed gate asked stays on record.
            decision.write(approval=Approval.APPROVED, note=clean_text(note) or decision.call.note)
        return self._refreshed()

    def decline(self, *, by: Any = None, reason: str = "") -> Self:
        """Refuse the call; the model is told, with ``reason``. A call in doubt is left as it is, unknown."""
        with self._deciding("declined", by, _open) as decision:
            why = f" Reason: {clean_text(reason)}" if reason else ""
            doubted = decision.call.status == CallStatus.IN_DOUBT
            decision.write(
                status=CallStatus.FAILED if doubted else CallStatus.REFUSED,
                approval=Approval.DECLINED,
                note=clean_text(reason),
                output_text=(
                    f"Outcome unknown: a crash interrupted this call and it was not run again.{why}"
                    if doubted
                    else f"Not run: a person declined this call.{why}"
                ),
                completed_at=timezone.now(),
            )
        return self._refreshed()

    def answer(self, text: str, *, by: Any = None) -> Self:
        """Give the model ``text`` as the result of a call that asks a person, instead of running it."""
        if not isinstance(text, str) or not text.strip():
            raise ValueError("The answer is empty; write what the model should be told.")
        answer = clean_text(text)
        with self._deciding("answered", by, _asks) as decision:
            decision.write(
                status=CallStatus.COMPLETED,
                approval=Approval.ANSWERED,
                result=answer,
                output_text=shown_to_model(answer),
                completed_at=timezone.now(),
            )
        return self._refreshed()

    def rerun(self, *, by: Any = None) -> Self:
        """Settle a call in doubt as not happened: it runs again."""
        with self._deciding("rerun", by, _doubted) as decision:
            decision.write(status=CallStatus.PENDING, run_token="", started_at=None)
        return self._refreshed()

    def confirm(self, result: Any, *, by: Any = None) -> Self:
        """Settle a call in doubt as happened: the model gets ``result`` (JSON) as if the tool had returned it."""
        clean = require_json(result, "result")
        with self._deciding("confirmed", by, _doubted) as decision:
            decision.write(
                status=CallStatus.COMPLETED,
                result=clean,
                output_text=shown_to_model(clean),
                run_token="",
                completed_at=timezone.now(),
            )
        return self._refreshed()

    async def aapprove(self, **options: Any) -> Self:
        """Async twin of :meth:`approve`."""
        return await sync_to_async(self.approve)(**options)

    async def adecline(self, **options: Any) -> Self:
        """Async twin of :meth:`decline`."""
        return await sync_to_async(self.decline)(**options)

    async def aanswer(self, text: str, **options: Any) -> Self:
        """Async twin of :meth:`answer`."""
        return await sync_to_async(self.answer)(text, **options)

    async def arerun(self, **options: Any) -> Self:
        """Async twin of :meth:`rerun`."""
        return await sync_to_async(self.rerun)(**options)

    async def aconfirm(self, result: Any, **options: Any) -> Self:
        """Async twin of :meth:`confirm`."""
        return await sync_to_async(self.confirm)(result, **options)

    @contextmanager
    def _deciding(self: Any, decision: str, by: Any, allowed: Any) -> Iterator[_Decision]:
        """Hold the turn, let the caller write the decision, then resume the turn if it was the last one open."""
        require_permission(by, "decide_toolcall", "decide a tool call")
        from agentturns.models.tool_call import ToolCall

        with locked(self.turn_id, self.turn.session_id) as turn:
            call = ToolCall.objects.get(pk=self.pk)
            if turn.is_finished or not allowed(call):
                raise _conflict(call, turn)
            require_consent(by, call)
            yield _Decision(call, by)
            acted = {"acted_by": name_of(by), "acted_at": timezone.now(), "acted_reason": ""}
            said = call.note if decision in ("approved", "declined") and call.note else ""
            log_change(by, call, f"{decision.capitalize()}. {said}".strip())
            after_commit(tool_call_decided, turn, tool_call=call, decision=decision)
            still_open = ToolCall.objects.filter(turn=turn.pk).awaiting_decision().exists()
            if turn.status == Status.PARKED and turn.park_reason in DECISION_REASONS and not still_open:
                requeue(turn, Status.PARKED, **acted)
                after_commit(turn_resumed, turn)

    def _refreshed(self: Any) -> Any:
        self.refresh_from_db()
        return self


class _Decision:
    """One decision being taken under the turn's lock."""

    def __init__(self, call: ToolCall, by: Any) -> None:
        self.call = call
        self._by = by

    def write(self, **columns: Any) -> None:
        """Record the decision and its maker on the call."""
        from agentturns.models.tool_call import ToolCall

        columns |= {"decided_by": self._by, "decided_by_name": name_of(self._by), "decided_at": timezone.now()}
        ToolCall.objects.filter(pk=self.call.pk).update(**columns)
        for name, value in columns.items():
            setattr(self.call, name, value)


def _asks(call: ToolCall) -> bool:
    return call.status == CallStatus.PENDING and call.approval == Approval.REQUIRED


def _asks_permission(call: ToolCall) -> bool:
    return _asks(call) and not call.is_question


def _doubted(call: ToolCall) -> bool:
    return call.status == CallStatus.IN_DOUBT


def _open(call: ToolCall) -> bool:
    return _asks(call) or _doubted(call)


def _conflict(call: ToolCall, turn: Turn) -> Conflict:
    state = call.approval or call.status
    if call.decided_at is not None:
        who = f" by {call.decided_by_name}" if call.decided_by_name else ""
        at = local_time(call.decided_at)
        message = f"The call of {call.name} was already {state}{who} at {at}; nothing was changed."
    else:
        message = f"The call of {call.name} is {state} and turn {turn.pk} is {turn.status}; no decision is open on it."
    return Conflict(message, status=state, by=call.decided_by_name, at=call.decided_at)
