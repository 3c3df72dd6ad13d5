"""The tool calls of one reply: taken up as the budget allows, gated, run, or left for a person."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from agentturns.cleaning import canonical_json, clean_json, clean_text, hash_json
from agentturns.conf import conf
from agentturns.definitions.agent import Agent
from agentturns.definitions.state import TurnState
from agentturns.definitions.tools import ApprovalRequest, Denied, InvalidArguments, Tool
from agentturns.engine import ledger
from agentturns.engine.keeper import LeaseKeeper
from agentturns.engine.results import CallOutcome, refused
from agentturns.engine.tool_budget import TurnBudget
from agentturns.engine.tool_runs import ToolRun
from agentturns.models.claims import Claim
from agentturns.models.states import Approval, CallStatus
from agentturns.models.step import Step
from agentturns.models.tool_call import ToolCall
from agentturns.providers.base import ModelReply, ToolRequest


@dataclass(frozen=True, slots=True)
class Ready:
    """A request that fits its tool: the values to call it with, and the same as JSON."""

    tool: Tool
    values: dict[str, Any]
    arguments: dict[str, Any]


def read_request(agent: Agent, name: str, raw_arguments: str) -> Ready | CallOutcome:
    """What the request asks for, or why it cannot be run, in words for the model."""
    tool = agent.tool_named(name)
    if tool is None:
        known = ", ".join(tool.name for tool in agent.tools) or "none"
        return refused(f"Not run: there is no tool named {name!r}. The tools are: {known}.")
    try:
        parsed = json.loads(raw_arguments or "{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return refused(f"Not run: the arguments are not valid JSON ({error}).")
    try:
        values, arguments = tool.validate(clean_json(parsed))
        return Ready(tool, values, clean_json(arguments))
    except InvalidArguments as error:
        return refused(f"Not run: the arguments do not fit {name}: {error}")
    except RecursionError:
        return refused(f"Not run: the arguments of {name} are nested too deeply.")


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def new_calls(agent: Agent, step: Step, reply: ModelReply, budget: TurnBudget) -> list[ToolCall]:
    """Rows for every request of ``reply``; as many as the budget allows are taken up at once."""
    fitting = budget.fitting(len(reply.tool_calls)) if reply.complete else 0
    return [
        _new_call(agent, step, position, request, reply, taken_up=position < fitting)
        for position, request in enumerate(reply.tool_calls)
    ]


def _new_call(
    agent: Agent, step: Step, position: int, request: ToolRequest, reply: ModelReply, *, taken_up: bool
) -> ToolCall:
    now = timezone.now()
    call = ToolCall(
        step=step,
        turn_id=step.turn_id,
        position=position,
        call_id=clean_text(request.call_id)[:200],
        name=clean_text(request.name)[:200],
        raw_arguments=clean_text(request.arguments),
        created_at=now,
        taken_up_at=now if taken_up else None,
    )
    if not reply.complete:
        _settle_unsaved(call, refused(f"Not run: the reply was not complete ({reply.stop_reason})."))
        return call
    read = read_request(agent, call.name, call.raw_arguments)
    if isinstance(read, Ready):
        call.effect = read.tool.effect
        call.is_question = read.tool.is_question
        call.arguments = read.arguments
        call.arguments_hash = hash_json(read.arguments)
    elif taken_up:
        _settle_unsaved(call, read)
    return call


def _settle_unsaved(call: ToolCall, outcome: CallOutcome) -> None:
    for name, value in ledger.outcome_columns(outcome).items():
        setattr(call, name, value)


class Batch:
    """The open calls of the last reply, in position order."""

    def __init__(
        self, claim: Claim, keeper: LeaseKeeper, agent: Agent, state: TurnState, calls: Sequence[ToolCall]
    ) -> None:
        self._claim = claim
        self._keeper = keeper
        self._agent = agent
        self._state = state
        self.calls = calls
        # Transactional calls of one turn run one at a time: their transactions write the same rows at the end.
        self._one_transaction = threading.Lock()

    def take_up(self, budget: TurnBudget) -> None:
        """Take up as many of the waiting calls as a raised budget now allows."""
        waiting = [call for call in self.calls if call.taken_up_at is None and call.status == CallStatus.PENDING]
        fitting = budget.fitting(len(waiting))
        if fitting:
            ledger.take_up(self._claim, waiting[:fitting], waiting=len(waiting) - fitting)

    def doubt_interrupted(self) -> None:
        """Calls found started belong to a worker that died: whether their effect happened is unknown."""
        for call in self.calls:
            if call.status == CallStatus.STARTED:
                ledger.doubt_call(self._claim, call)

    def is_open(self) -> bool:
        """Whether a call has no output for the model yet."""
        return any(call.status in CallStatus.open() for call in self.calls)

    def ready(self) -> list[ToolCall]:
        """The calls that may go on without a person, in position order."""
        return [
            call
            for call in self.calls
            if call.status == CallStatus.PENDING and call.taken_up_at and call.approval != Approval.REQUIRED
        ]

    def halted(self) -> ToolCall | None:
        """The call whose completion ends the turn, if there is one."""
        return next((call for call in self.calls if call.halts and call.status == CallStatus.COMPLETED), None)

    def advance(self, call: ToolCall) -> None:
        """Ask the call's gate, and run or settle it as that allows."""
        # A person approved the arguments as they were shown, defaults included, whatever the code says by now.
        approved = call.approval == Approval.APPROVED
        read = read_request(self._agent, call.name, canonical_json(call.arguments) if approved else call.raw_arguments)
        if isinstance(read, CallOutcome):
            ledger.settle_call(self._claim, call, read)
            return
        if self._state.skip_side_effects and read.tool.effect != "idempotent":
            ledger.settle_call(
                self._claim, call, refused(f"Not run: side effects are off for this turn ({call.name}).")
            )
            return
        if self._is_gated(read.tool) and call.gated_at is None:
            self._ask_gate(call, read)
            if call.status != CallStatus.PENDING or call.approval == Approval.REQUIRED:
                return
        call.effect = call.effect or read.tool.effect
        run = ToolRun(self._claim, self._keeper, call, read.tool, read.values, self._state)
        if call.effect == "transactional":
            with self._one_transaction:
                run.run()
        else:
            run.run()

    def _is_gated(self, tool: Tool) -> bool:
        return tool.can_ask or self._state.approval_coordinator is not None or self._must_ask(tool)

    def _must_ask(self, tool: Tool) -> bool:
        """Whether middleware wants a person asked before each effect of this turn."""
        return self._state.requires_approval and tool.effect != "idempotent"

    def _ask_gate(self, call: ToolCall, read: Ready) -> None:
        """Ask the call's approval policy, once, and keep what it says."""
        verdict = self._verdict(call, read)
        if isinstance(verdict, Denied):
            reason = clean_text(verdict.reason)
            ledger.settle_call(self._claim, call, refused(f"Not run: {reason}"), note=reason, gated_at=timezone.now())
        elif verdict is False:
            ledger.store_gate(self._claim, call)
        else:
            ledger.store_gate(
                self._claim,
                call,
                approval=Approval.REQUIRED,
                note=clean_text(verdict) if isinstance(verdict, str) else "",
                expires_at=timezone.now() + timedelta(seconds=conf.APPROVAL_SECONDS),
            )

    def _verdict(self, call: ToolCall, read: Ready) -> bool | str | Denied:
        """True or a reason (ask a person), False (run), or Denied. A gate that fails asks a person, and says why."""
        request = ApprovalRequest(read.tool, read.arguments, self._state)
        coordinator = self._state.approval_coordinator
        said = _asked(coordinator, request, "the project") if coordinator else None
        if said is not None:
            return said
        if self._must_ask(read.tool):
            return True
        match read.tool.approval:
            case "always":
                return True
            case "once":
                return not _approved_before(call)
            case str():
                return False
            case rule:
                said = _asked(rule, request, call.name)
                if said is None:
                    return f"The approval rule of {call.name} returned None, which is neither True nor False."
                return said


def _asked(rule: Callable[[ApprovalRequest], Any], request: ApprovalRequest, whose: str) -> bool | str | Denied | None:
    """What an approval rule says; for one that fails, the reason to ask a person."""
    try:
        said = rule(request)
    except Exception as error:
        return f"The approval rule of {whose} failed ({type(error).__name__}: {error})."
    if said is None or isinstance(said, bool | Denied):
        return said
    return f"The approval rule of {whose} returned {said!r}, which is neither True nor False."


def _approved_before(call: ToolCall) -> bool:
    """Whether a person approved this tool with identical arguments in this session."""
    return (
        ToolCall.objects.filter(
            turn__session=call.turn.session_id,
            name=call.name,
            arguments_hash=call.arguments_hash,
            approval=Approval.APPROVED,
        )
        .exclude(pk=call.pk)
        .exists()
    )
