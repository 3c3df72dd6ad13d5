"""The step loop: from a claim to an exit."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import connections
from django.utils import timezone

from agentturns.cleaning import clean_text
from agentturns.conf import conf, load
from agentturns.definitions.agent import Agent, registered_agents
from agentturns.definitions.state import TurnState, current_tool_call, current_tool_name
from agentturns.engine import ledger, notices, snapshot
from agentturns.engine.backoff import after_fault
from agentturns.engine.batch import Batch, new_calls
from agentturns.engine.concurrency import allowed_width, run_concurrently
from agentturns.engine.durable import durably, insist
from agentturns.engine.keeper import LeaseKeeper
from agentturns.engine.loops import before_loop, repeats_of
from agentturns.engine.middleware import run_middleware
from agentturns.engine.model_call import ModelCall
from agentturns.engine.tool_budget import TurnBudget
from agentturns.engine.transcript import Transcript
from agentturns.exceptions import ConfigurationError, LeaseLost
from agentturns.models.claims import Claim
from agentturns.models.exits import Exit, Finished, Parked, Yielded, leave
from agentturns.models.notice import Notice
from agentturns.models.queueing import wording
from agentturns.models.states import CallStatus, ParkReason, Status, StepStatus
from agentturns.models.step import Step
from agentturns.models.tool_call import ToolCall
from agentturns.models.turn import Turn
from agentturns.money.budget import exceeded_reason, limit_for, policy_for, spent_on, standing
from agentturns.providers.base import ModelReply, ProviderError

logger = logging.getLogger("agentturns")


def run_turn(turn_id: int) -> Turn:
    """Claim the turn and run it in this process until it finishes, parks, backs off or turns out to be held.

    Returns the turn as it then stands. A turn that is not runnable (finished, parked, held by a worker, behind an
    earlier turn of its session) is returned as it is.
    """
    keeper = LeaseKeeper()
    if connections[conf.DATABASE].in_atomic_block:
        # Inside a test's transaction no other connection sees the rows, so there is nothing to keep alive.
        _run_until_rest(turn_id, keeper)
    else:
        with keeper.beating():
            _run_until_rest(turn_id, keeper)
    return Turn.objects.get(pk=turn_id)


def _run_until_rest(turn_id: int, keeper: LeaseKeeper) -> None:
    while (taken := keeper.claim(turn_id)) is not None:
        left = run_claimed(taken, keeper)
        if left is not None and not (isinstance(left, Yielded) and left.after is None):
            return


def run_claimed(claim: Claim, keeper: LeaseKeeper) -> Exit | None:
    """Run a claimed turn to its exit, in a context of its own; None when the lease was lost on the way."""
    try:
        return contextvars.copy_context().run(_TurnRun(claim, keeper).go)
    except LeaseLost as lost:
        logger.warning("turn=%s lease lost attempt=%s: %s", claim.turn.pk, claim.attempt, lost)
        return None
    finally:
        keeper.release(claim)


class _TurnRun:
    """One claim's way through the loop."""

    def __init__(self, claim: Claim, keeper: LeaseKeeper) -> None:
        self.claim = claim
        self.turn = claim.turn
        self.keeper = keeper
        self.state = _fresh_state(claim)
        self.transcript: Transcript | None = None
        self.unsaved: dict[str, Any] = {}
        self.last: Step | None = None
        self.begun: Step | None = None
        self.calls: list[ToolCall] = []
        self.notices: list[str] = []

    def go(self) -> Exit:
        current_tool_call.set(None)
        current_tool_name.set("")
        wish = self._prepare()
        if wish is not None and (left := self._leave(wish)) is not None:
            return left
        while True:
            left = self._finish_batch() or self._boundary() or self._step()
            if left is not None:
                return left

    # -- taking up ------------------------------------------------------------------------------------------------

    def _prepare(self) -> Exit | None:
        """What must hold before the first boundary; an exit when it does not."""
        if self.turn.crashes >= conf.CRASH_LIMIT:
            return Parked(ParkReason.CRASH_LOOP)
        agent = registered_agents().get(self.turn.agent)
        if agent is None:
            return Parked(ParkReason.AGENT_MISSING)
        self.agent: Agent = agent
        try:
            self._set_up()
        except ConfigurationError as error:
            return Parked(ParkReason.PROVIDER_ERROR, code="configuration", message=str(error))
        except Exception as error:
            message = f"Setting up a turn of agent {agent.name!r} failed: {type(error).__name__}: {error}."
            return Finished(Status.FAILED, code="setup", message=clean_text(message))
        if self.state.halt_reason:
            return Finished(Status.FAILED, code="halted", message=clean_text(self.state.halt_reason))
        if self.state.halt_response is not None:
            return Finished(Status.COMPLETED, answer=clean_text(self.state.halt_response))
        insist(self.claim, self._load_batch)
        return None

    def _set_up(self) -> None:
        """What the project says of this turn: its middleware and snapshot the first time, its rules every time."""
        state = self.state
        if conf.APPROVAL_COORDINATOR:
            state.approval_coordinator = load(conf.APPROVAL_COORDINATOR, "APPROVAL_COORDINATOR")
        if not snapshot.is_taken(self.turn):
            run_middleware(state)
            if state.halt_reason or state.halt_response is not None:
                return
            self.unsaved = snapshot.take(self.agent, state)
            for name, value in self.unsaved.items():
                setattr(self.turn, name, value)
        state.queue_policy = self.turn.queue_policy
        state.capability_names = tuple(tool.name for tool in self.agent.tools)
        state.requested_tool_concurrency = self.agent.tool_concurrency
        asks = state.requires_approval or state.approval_coordinator is not None
        can_ask = asks or any(tool.can_ask for tool in self.agent.tools)
        # Inside a test's transaction no other connection sees the rows, so there is one thread.
        alone = connections[conf.DATABASE].in_atomic_block
        state.tool_concurrency = None if alone else allowed_width(self.agent.tool_concurrency, can_ask=can_ask)

    def _load_batch(self, again: bool = False) -> None:
        """The last reply's step and its calls, as the rows have them."""
        steps = Step.objects.filter(turn=self.turn.pk).order_by("-index")
        self.last = steps.filter(status=StepStatus.COMPLETED).first()
        self.begun = steps.filter(status=StepStatus.STARTED).first()
        calls = ToolCall.objects.filter(turn=self.turn.pk).order_by("position")
        self.calls = list(calls.filter(step=self.last)) if self.last else []

    # -- the batch ------------------------------------------------------------------------------------------------

    def _budget(self) -> TurnBudget:
        maximum = limit_for(self.turn, "max_tool_calls")
        return TurnBudget(None if maximum is None else int(maximum), self.turn.tool_call_count)

    def _finish_batch(self) -> Exit | None:
        """Run what may run of the open calls; an exit when some must wait."""
        batch = Batch(self.claim, self.keeper, self.agent, self.state, self.calls)
        if not batch.halted():
            if not batch.is_open():
                return None
            batch.doubt_interrupted()
            if (left := self._run_batch(batch)) is not None:
                return left
        if (halted := batch.halted()) is not None:
            return self._leave(Finished(Status.COMPLETED, answer=halted.output_text))
        return self._leave_open_calls()

    def _run_batch(self, batch: Batch) -> Exit | None:
        """Take up what fits and run what needs no person; an exit when interrupted or going in circles."""
        if self.turn.tool_calls_waiting:
            self._read_row()
            batch.take_up(self._budget())
        most = standing(self.turn, "max_tool_repeat").value
        ready = batch.ready()
        going = ready if most is None else insist(self.claim, lambda again: before_loop(ready, most))
        width = self.state.tool_concurrency
        if width is not None and len(going) > 1:
            run_concurrently(going, width, batch.advance, lambda: not batch.halted() and self._may_go_on())
            if any(call.status == CallStatus.PENDING for call in going) and not batch.halted():
                return self._interrupted()
        else:
            for number, call in enumerate(going):
                if number and (left := self._interrupted()) is not None:
                    return left
                batch.advance(call)
                if batch.halted() is not None:
                    return None
        if len(going) < len(ready) and not batch.halted():
            return self._leave(_looping(ready[len(going)], most))
        return None

    def _may_go_on(self) -> bool:
        """Asked by each thread of a batch before it begins another call."""
        return not self.keeper.stopping.is_set() and self.claim.held().filter(cancel_requested_at=None).exists()

    def _leave_open_calls(self) -> Exit | None:
        reason = _decision_reason(self.calls)
        if reason is None:
            if not self.turn.tool_calls_waiting:
                return None
            return self._breach("max_tool_calls")
        left = self._leave(Parked(reason))
        if left is None:
            # The last decision was taken while the other calls ran: go on with it.
            insist(self.claim, self._load_batch)
            return self._finish_batch()
        return left

    # -- the boundary ---------------------------------------------------------------------------------------------

    def _interrupted(self) -> Exit | None:
        """A cancel that was asked for, or a worker that is stopping."""
        self._read_row()
        if self.turn.cancel_requested_at is not None:
            return self._leave(Finished(Status.CANCELED))
        return self._leave(Yielded()) if self.keeper.stopping.is_set() else None

    def _boundary(self) -> Exit | None:
        """Between steps: cancel, notices to the model, messages from people, then the budget's verdict."""
        left = self._interrupted()
        if left is not None:
            return left
        now = (self.turn.active_since or timezone.now()) + timedelta(seconds=self.claim.elapsed())
        self._tell_notices(now)
        self._take_in_messages()
        cap = exceeded_reason(self.turn, now=now)
        if cap == "max_steps" and self.begun is not None:
            cap = None  # the step that gave no reply yet is counted already; asking again is no further one
        return None if cap is None else self._breach(cap)

    def _tell_notices(self, now: datetime) -> None:
        """After a closed batch: what the model is to be told about its budget."""
        if self.last is None or not self.calls:
            return
        budget, most = self._budget(), standing(self.turn, "max_tool_repeat").value
        shares = standing(self.turn, "warn_at").value or ()
        if not (shares or most) and budget.warning(()) is None:
            return  # most batches: nothing to say, nothing to look up
        told = Notice.objects.filter(turn=self.turn.pk).values_list("kind", "cap", "limit_value", "threshold")
        said = insist(self.claim, lambda again: set(told))
        for saying in self._due(budget, shares, most, said, now):
            ledger.tell(self.claim, self.last, saying)
            self.notices.append(saying.text)

    def _take_in_messages(self) -> None:
        """What people sent while the turn ran; it never cuts into a batch."""
        if self.turn.messages_waiting:
            texts = ledger.take_in_messages(self.claim, self.last.index if self.last else 0)
            self.turn.messages_waiting = 0
            self.state.inbox.extend(texts)
            self.notices.extend(wording(text) for text in texts)

    def _due(
        self, budget: TurnBudget, shares: Sequence[float], most: int | None, said: notices.Said, now: datetime
    ) -> Iterator[notices.Saying]:
        yield from notices.of_tool_budget(budget, said)
        for cap in notices.WARNED if shares else ():
            if (limit := limit_for(self.turn, cap)) is not None:
                yield from notices.of_share(cap, spent_on(self.turn, cap, now=now), limit, shares, said)
        if most is not None:
            count = insist(self.claim, lambda again: repeats_of(self.calls[-1], most))
            yield from notices.of_repeat(self.calls[-1], count, most, said)

    def _breach(self, cap: str, message: str = "") -> Exit | None:
        if cap != ParkReason.UNPRICED and policy_for(self.turn, cap) == "fail":
            code = "tool_limit" if cap == "max_tool_calls" else cap
            limit = limit_for(self.turn, cap)
            return self._leave(
                Finished(Status.FAILED, code=code, message=message or f"The turn used up its {cap} of {limit}.")
            )
        return self._leave(Parked(cap, message=message))

    def _read_row(self) -> None:
        """What people may have changed since the claim: one row read."""
        columns = ("cancel_requested_at", "budget_overrides", "limits", "messages_waiting")
        row = insist(self.claim, lambda again: self.claim.held().values_list(*columns).first())
        if row is None:
            self.claim.ended = True
            raise LeaseLost(f"Turn {self.turn.pk} is no longer held.")
        for name, value in zip(columns, row, strict=True):
            setattr(self.turn, name, value)

    def _leave(self, wish: Exit) -> Exit | None:
        snapshot_columns, self.unsaved = self.unsaved, {}
        return durably(self.claim, lambda again: leave(self.claim, wish, **snapshot_columns))

    # -- the step -------------------------------------------------------------------------------------------------

    def _step(self) -> Exit | None:
        """One model call and its record; an exit when it ended or stopped the turn."""
        transcript = self._told()
        try:
            call = ModelCall(self.turn, transcript, self.state, self.begun, self.last)
        except ConfigurationError as error:
            return self._leave(Parked(ParkReason.PROVIDER_ERROR, code="configuration", message=str(error)))
        if (shortfall := call.shortfall()) is not None:
            return self._breach("max_cost", shortfall)
        ledger.begin_step(self.claim, call.step, self.unsaved)
        self.unsaved = {}
        self.state.baseline = transcript.baseline
        self.claim.require()
        try:
            reply = call.make()
        except ProviderError as error:
            return self._back_off(call, error)
        return self._record(call, reply)

    def _back_off(self, call: ModelCall, error: ProviderError) -> Exit | None:
        wish, heir = call.passed_on(after_fault(error, self.turn.provider_failures + 1))
        return ledger.record_failure(self.claim, call.step, str(error), call.presumed(error), wish, heir)

    def _told(self) -> Transcript:
        """The conversation up to here: rebuilt from rows at first, then extended by each closed step."""
        if self.transcript is None:
            self.transcript = insist(self.claim, lambda again: Transcript(self.turn))
        elif self.last is not None:
            self.transcript.add(self.last, self.calls, self.notices, turn=self.turn)
        self.notices = []
        return self.transcript

    def _record(self, call: ModelCall, reply: ModelReply) -> Exit | None:
        calls = new_calls(self.agent, call.step, reply, self._budget())
        end: Exit | None = None if calls else _end(reply)
        if (cut := call.cut_short(reply)) and end is not None and policy_for(self.turn, "max_cost") == "park":
            end = Parked("max_cost", message=cut)
        left = ledger.record_reply(self.claim, call.step, reply, call.charge(reply), calls, end)
        if left is not None:
            return left
        self.last, self.begun, self.calls = call.step, None, calls
        self.state.usage = _usage(self.turn)
        return None


def _fresh_state(claim: Claim) -> TurnState:
    turn = claim.turn
    return TurnState(
        turn=turn,
        session=turn.session,
        tenant=turn.tenant,
        user=turn.user if turn.user_id else None,
        turn_context=dict(turn.context),
        profile=dict(turn.session.metadata),
        message=turn.message or turn.input,
        resumed=claim.attempt > 1,
        usage=_usage(turn),
        skip_side_effects=bool(turn.flags.get("skip_side_effects")),
        requires_approval=bool(turn.flags.get("requires_approval")),
    )


def _usage(turn: Turn) -> dict[str, Any]:
    return {name: getattr(turn, name) for name in (*ledger.TOKENS, "cost", "presumed_cost")}


def _decision_reason(calls: list[ToolCall]) -> str | None:
    """What the open decisions of a batch park the turn for; the gravest first."""
    waiting = [call for call in calls if call.awaits_decision]
    if not waiting:
        return None
    if any(call.status == CallStatus.IN_DOUBT for call in waiting):
        return ParkReason.IN_DOUBT
    return ParkReason.QUESTION if all(call.is_question for call in waiting) else ParkReason.APPROVAL


def _looping(call: ToolCall, most: int | None) -> Parked:
    message = (
        f"The model asked for {call.name} with the same arguments more than {most} times in a row; retry to let it "
        "run once more, or cancel."
    )
    return Parked(ParkReason.TOOL_LOOP, message=message)


def _end(reply: ModelReply) -> Finished:
    """How a reply without tool calls ends the turn; one that was cut or refused fails it and keeps the text."""
    if reply.complete:
        return Finished(Status.COMPLETED, answer=clean_text(reply.text))
    return Finished(
        Status.FAILED,
        answer=clean_text(reply.text),
        code="incomplete_reply",
        message=(
            f"The model's reply is not complete ({reply.stop_reason}). Retry to ask again; a reply cut by its output "
            "limit needs a larger max_reply_tokens on the agent."
        ),
    )
