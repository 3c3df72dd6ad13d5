"""The engine's transactions: each writes what happened, with the counters it moves, and ends with the fence."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import F
from django.utils import timezone

from agentturns.cleaning import clean_json, clean_text
from agentturns.engine.candidates import Candidate
from agentturns.engine.durable import durably
from agentturns.engine.notices import Saying
from agentturns.engine.results import CallOutcome, timed_out
from agentturns.exceptions import LeaseLost
from agentturns.models.claims import Claim
from agentturns.models.exits import Exit, Yielded, leave
from agentturns.models.lifecycle import after_commit, locked
from agentturns.models.notice import Notice
from agentturns.models.queueing import deliver
from agentturns.models.states import CallStatus, StepStatus
from agentturns.models.step import Step
from agentturns.models.tool_call import ToolCall
from agentturns.providers.base import ModelReply
from agentturns.signals import step_finished, tool_budget_warned

COUNTERS = (
    "step_count",
    "tool_call_count",
    "tool_calls_waiting",
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost",
    "presumed_cost",
    "unpriced_steps",
)
TOKENS = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
PROGRESS = {"crashes": 0, "provider_failures": 0}


@dataclass(frozen=True, slots=True)
class Charge:
    """What one reply cost. ``cost`` is None where it is not known; then ``presumed`` may stand in for it."""

    cost: Decimal | None
    presumed: Decimal = Decimal(0)
    source: str = ""

    @property
    def unpriced(self) -> bool:
        """Whether neither a cost nor a presumption rests on a price."""
        return self.cost is None and not self.source


def begin_step(claim: Claim, step: Step, snapshot: dict[str, Any]) -> None:
    """T1: the step stands as started, with its estimate, before the model is called."""

    def write(again: bool) -> None:
        if again:
            step.pk = Step.objects.filter(turn=step.turn_id, index=step.index).values_list("pk", flat=True).first()
        if step.pk is None:
            step.save(force_insert=True)
        else:
            Step.objects.filter(pk=step.pk).update(**{name: getattr(step, name) for name in _STARTED})
        claim.fence(step_count=step.index, **snapshot)

    durably(claim, write)
    claim.turn.step_count = step.index


_STARTED = (
    "attempts",
    "model",
    "requested_model",
    "provider",
    "estimate",
    "estimated_input_tokens",
    "output_limit",
    "started_at",
    "error",
)


def record_reply(
    claim: Claim, step: Step, reply: ModelReply, charge: Charge, calls: Sequence[ToolCall], wish: Exit | None
) -> Exit | None:
    """T2: reply, usage, cost, the calls it asks for and the turn's counters; with ``wish`` also the end of the turn."""
    _fill(step, reply, charge, terminal=wish is not None)
    turn = claim.turn
    counters = {name: getattr(turn, name) for name in COUNTERS}
    for name in TOKENS:
        counters[name] += getattr(step, name) or 0
    counters["cost"] += charge.cost or 0
    counters["presumed_cost"] += charge.presumed
    counters["unpriced_steps"] += charge.unpriced
    taken_up = sum(call.taken_up_at is not None for call in calls)
    waiting = sum(call.taken_up_at is None and call.status == CallStatus.PENDING for call in calls)
    counters["tool_call_count"] += taken_up
    counters["tool_calls_waiting"] = waiting

    def write(again: bool) -> Exit | None:
        completed = {name: getattr(step, name) for name in _COMPLETED}
        recorded = Step.objects.filter(pk=step.pk, status=StepStatus.STARTED).update(
            status=StepStatus.COMPLETED, **completed
        )
        if not recorded and not again:
            raise LeaseLost(f"Step {step.index} of turn {turn.pk} was completed by another worker.")
        if recorded:
            ToolCall.objects.bulk_create(calls)
        after_commit(step_finished, turn, step=step)
        if wish is not None:
            return leave(claim, wish, **counters, **PROGRESS)
        claim.fence(**counters, **PROGRESS)
        return None

    left = durably(claim, write)
    step.status = StepStatus.COMPLETED
    for name, value in {**counters, **PROGRESS}.items():
        setattr(turn, name, value)
    return left


_COMPLETED = (
    "wire",
    "output",
    "stop_reason",
    "terminal",
    "model",
    *TOKENS,
    "cache_write_1h_tokens",
    "cost",
    "presumed_cost",
    "price_source",
    "request_id",
    "error",
    "completed_at",
)


def _fill(step: Step, reply: ModelReply, charge: Charge, *, terminal: bool) -> None:
    step.wire = reply.wire
    step.output = clean_json(list(reply.output)) or [{"type": "text", "text": clean_text(reply.text)}]
    step.stop_reason = reply.stop_reason[:60]
    step.terminal = terminal
    step.model = reply.model[:200] or step.model
    for name in TOKENS:
        setattr(step, name, getattr(reply.usage, name))
    step.cache_write_1h_tokens = reply.usage.cache_write_1h_tokens
    step.cost = charge.cost
    step.presumed_cost += charge.presumed
    step.price_source = charge.source[:200]
    step.request_id = reply.request_id[:200]
    step.error = ""
    step.completed_at = timezone.now()


def record_failure(
    claim: Claim, step: Step, message: str, presumed: Decimal, wish: Exit, heir: Candidate | None = None
) -> Exit | None:
    """A model call gave no reply: what it may have cost is presumed, and the turn leaves as ``wish`` says.

    ``heir`` is the model that the step is asked of next, with attempts of its own; None leaves it to the same one.
    """
    text = clean_text(message)
    asked = {} if heir is None else {"provider": heir.alias, "model": heir.name, "requested_model": heir.name}
    failures = {"provider_failures": 0} if heir is not None and isinstance(wish, Yielded) else {}

    def write(again: bool) -> Exit | None:
        Step.objects.filter(pk=step.pk).update(error=text, presumed_cost=step.presumed_cost + presumed, **asked)
        return leave(claim, wish, presumed_cost=claim.turn.presumed_cost + presumed, **failures)

    return durably(claim, write)


def take_up(claim: Claim, calls: Sequence[ToolCall], waiting: int) -> None:
    """Count ``calls`` as taken up, so that they may run; ``waiting`` more stay behind."""
    now = timezone.now()
    counters = {
        "tool_call_count": claim.turn.tool_call_count + len(calls),
        "tool_calls_waiting": waiting,
    }

    def write(again: bool) -> None:
        ToolCall.objects.filter(pk__in=[call.pk for call in calls]).update(taken_up_at=now)
        claim.fence(**counters)

    durably(claim, write)
    for call in calls:
        call.taken_up_at = now
    for name, value in counters.items():
        setattr(claim.turn, name, value)


def tell(claim: Claim, step: Step, saying: Saying) -> None:
    """Store a notice to the model: said once, whatever crashes."""
    key = {"kind": saying.kind, "cap": saying.cap, "limit_value": saying.limit_value, "threshold": saying.threshold}

    def write(again: bool) -> None:
        if not (again and Notice.objects.filter(turn=claim.turn.pk, **key).exists()):
            Notice.objects.create(turn_id=claim.turn.pk, **key, after_step=step.index, text=saying.text)
        if saying.kind == "tool_budget":
            remaining, maximum = int(saying.threshold), int(saying.limit_value)
            after_commit(tool_budget_warned, claim.turn, remaining=remaining, max=maximum)
        claim.fence()

    durably(claim, write)


def take_in_messages(claim: Claim, after_step: int) -> list[str]:
    """Let the messages that wait for this turn be seen after ``after_step``; their texts, as the model reads them."""

    def write(again: bool) -> list[str]:
        texts = deliver(claim.turn, after_step)
        # The count in memory may be older than a message that arrived just now.
        claim.fence(messages_waiting=F("messages_waiting") - len(texts))
        return texts

    return durably(claim, write)


def store_gate(claim: Claim, call: ToolCall, **columns: Any) -> None:
    """Keep what an approval gate said, so that it is asked once."""
    columns["gated_at"] = timezone.now()
    _change(claim, call, expected=CallStatus.PENDING, **columns)


def start_call(claim: Claim, call: ToolCall) -> None:
    """An at-most-once call is about to run: found like this after a crash, it is in doubt."""
    _change(
        claim,
        call,
        expected=CallStatus.PENDING,
        status=CallStatus.STARTED,
        run_token=uuid.uuid4().hex,
        started_at=timezone.now(),
    )


def doubt_call(claim: Claim, call: ToolCall) -> None:
    """Nobody knows whether this call's effect happened; a person must say."""
    _change(claim, call, expected=CallStatus.STARTED, status=CallStatus.IN_DOUBT)


def settle_call(claim: Claim, call: ToolCall, outcome: CallOutcome, **also: Any) -> None:
    """The call has its outcome; the columns ``also`` are written with it."""
    columns = outcome_columns(outcome) | also

    def write(again: bool) -> None:
        settled = ToolCall.objects.filter(pk=call.pk, status=call.status).update(**columns)
        if not settled and not (again and ToolCall.objects.filter(pk=call.pk, status=outcome.status).exists()):
            raise LeaseLost(f"Call {call.pk} was settled by somebody else.")
        claim.fence(**PROGRESS)

    durably(claim, write)
    note_progress(claim, call, columns)


def note_progress(claim: Claim, call: ToolCall, columns: dict[str, Any]) -> None:
    """Bring the instances in memory to what was committed."""
    for name, value in columns.items():
        setattr(call, name, value)
    for name, value in PROGRESS.items():
        setattr(claim.turn, name, value)


def outcome_columns(outcome: CallOutcome) -> dict[str, Any]:
    """The columns of a call that has this outcome."""
    return {
        "status": outcome.status,
        "output_text": outcome.text,
        "result": outcome.result,
        "error": outcome.error,
        "halts": outcome.halts,
        "completed_at": timezone.now(),
    }


def give_up_call(claim: Claim, call: ToolCall, seconds: float) -> None:
    """Settle an overdue call whose thread hangs, and give its turn back to the queue. Raises ``LeaseLost``."""
    with locked(claim.turn.pk, claim.turn.session_id):
        if not claim.held().exists():
            raise LeaseLost(f"Turn {claim.turn.pk} is no longer held by {claim.owner}.")
        settled = ToolCall.objects.filter(pk=call.pk, status__in=(CallStatus.PENDING, CallStatus.STARTED)).update(
            **outcome_columns(timed_out(call.effect, seconds)), run_token=""
        )
        if settled:
            leave(claim, Yielded())


def _change(claim: Claim, call: ToolCall, *, expected: str, **columns: Any) -> None:
    def write(again: bool) -> None:
        changed = ToolCall.objects.filter(pk=call.pk, status=expected).update(**columns)
        if not changed and not again:
            raise LeaseLost(f"Call {call.pk} is no longer {expected}.")
        claim.fence()

    durably(claim, write)
    for name, value in columns.items():
        setattr(call, name, value)
