"""Turns as an engine leaves them, made row by row: their counters are the sums of what is given here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from agentturns import Session, Step, ToolCall, Turn

TOKENS = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")

Call = dict[str, Any]


def a_call(name: str = "look_up_order", **columns: Any) -> Call:
    """A tool call that ran, unless ``columns`` say otherwise."""
    ran = {
        "arguments": {"order_number": "1042"},
        "effect": "idempotent",
        "status": "completed",
        "output_text": "delivered",
        "taken_up_at": timezone.now(),
    }
    return {"name": name, **ran, **columns}


def a_question(name: str = "issue_refund", **columns: Any) -> Call:
    """A tool call that waits for approval."""
    asked = {"arguments": {"amount_pence": 4200}, "effect": "transactional", "status": "pending", "output_text": ""}
    return a_call(name, **{**asked, "approval": "required", **columns})


def a_doubt(name: str = "send_email", **columns: Any) -> Call:
    """A tool call of which a crash left unknown whether it happened."""
    return a_call(name, **{"effect": "at_most_once", "status": "in_doubt", "output_text": "", **columns})


def a_step(*calls: Call, **columns: Any) -> tuple[dict[str, Any], Sequence[Call]]:
    """A completed model call at ten cents with these tool calls."""
    began = timezone.now() - timedelta(minutes=3)
    completed = {
        "status": "completed",
        "model": "gpt-5-mini",
        "provider": "openai",
        "output": [{"type": "text", "text": "I look first."}],
        "input_tokens": 1_000,
        "output_tokens": 200,
        "cost": Decimal("0.10"),
        "price_source": "genai-prices",
        "started_at": began,
        "completed_at": began + timedelta(seconds=2),
    }
    return {**completed, **columns}, calls


def a_turn(*steps: tuple[dict[str, Any], Sequence[Call]], **columns: Any) -> Turn:
    """A turn with these steps; queued and under a limit of 25 cents unless ``columns`` say otherwise."""
    columns = {"agent": "support", "model": "openai:gpt-5-mini", "input": "Where is my order?", **columns}
    columns.setdefault("limits", {"max_cost": "0.25"})
    if columns.get("status") == "parked":
        columns.setdefault("parked_at", timezone.now() - timedelta(minutes=5))
    session = Session.objects.create(agent=columns["agent"], tenant=columns.get("tenant", ""))
    turn = Turn.objects.create(session=session, index=1, attempt=1, **_counters(steps), **columns)
    for index, (step_columns, calls) in enumerate(steps, start=1):
        step = Step.objects.create(turn=turn, index=index, **step_columns)
        for position, call in enumerate(calls):
            ToolCall.objects.create(step=step, turn=turn, position=position, created_at=timezone.now(), **call)
    return turn


def _counters(steps: Iterable[tuple[dict[str, Any], Sequence[Call]]]) -> dict[str, Any]:
    rows = [columns for columns, _ in steps]
    calls = [call for _, calls in steps for call in calls]
    return {
        "step_count": len(rows),
        "tool_call_count": sum(call["taken_up_at"] is not None for call in calls),
        "tool_calls_waiting": sum(call["taken_up_at"] is None and call["status"] == "pending" for call in calls),
        **{name: sum(row.get(name) or 0 for row in rows) for name in TOKENS},
        "cost": sum((row["cost"] or Decimal(0) for row in rows), Decimal(0)),
        "presumed_cost": sum((row.get("presumed_cost") or Decimal(0) for row in rows), Decimal(0)),
        "unpriced_steps": sum(row["cost"] is None and not row["price_source"] for row in rows),
    }


def over_cost(**columns: Any) -> Turn:
    """A turn parked on ``max_cost``: 30 cents spent of 25."""
    return a_turn(a_step(a_call()), a_step(a_call()), a_step(), status="parked", park_reason="max_cost", **columns)


def without_price(**columns: Any) -> Turn:
    """A turn parked as ``unpriced``: its only step has no known price."""
    step = a_step(cost=None, price_source="")
    return a_turn(step, status="parked", park_reason="unpriced", **columns)


def asking(*calls: Call, **columns: Any) -> Turn:
    """A turn parked on an approval."""
    columns.setdefault("park_reason", "approval")
    return a_turn(a_step(*(calls or [a_question()])), status="parked", **columns)


def in_doubt(**columns: Any) -> Turn:
    """A turn parked on a call in doubt."""
    return a_turn(a_step(a_doubt()), status="parked", park_reason="in_doubt", **columns)


def out_of_calls(**columns: Any) -> Turn:
    """A turn parked on ``max_tool_calls``: two of two taken up, one more waiting."""
    waiting = a_call(status="pending", output_text="", taken_up_at=None)
    columns.setdefault("limits", {"max_cost": "0.25", "max_tool_calls": 2})
    return a_turn(a_step(a_call(), a_call(), waiting), status="parked", park_reason="max_tool_calls", **columns)


def out_of_steps(**columns: Any) -> Turn:
    """A turn failed by ``max_steps``."""
    columns.setdefault("limits", {"max_steps": 1})
    return a_turn(a_step(), status="failed", error_code="max_steps", **columns)
