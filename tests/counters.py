"""The counters of every turn against the sums over its rows."""

from __future__ import annotations

from decimal import Decimal

from agentturns import Step, ToolCall, Turn

TOKENS = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")


def wrong_counters() -> list[str]:
    """One sentence for each counter that does not equal its rows."""
    return [
        f"turn {turn.pk} ({turn.status} {turn.park_reason}): {name} is {getattr(turn, name)!r}, rows say {expected!r}"
        for turn in Turn.objects.all()
        for name, expected in _sums(turn).items()
        if getattr(turn, name) != expected
    ]


def _sums(turn: Turn) -> dict[str, int | Decimal]:
    steps = list(Step.objects.filter(turn=turn))
    calls = list(ToolCall.objects.filter(turn=turn))
    return {
        "step_count": len(steps),
        "tool_call_count": sum(call.taken_up_at is not None for call in calls),
        "tool_calls_waiting": sum(call.taken_up_at is None and call.status == "pending" for call in calls),
        **{name: sum(getattr(step, name) or 0 for step in steps) for name in TOKENS},
        "cost": sum((step.cost or Decimal(0) for step in steps), Decimal(0)),
        "presumed_cost": sum((step.presumed_cost for step in steps), Decimal(0)),
        "unpriced_steps": sum(step.status == "completed" and not step.priced for step in steps),
    }
