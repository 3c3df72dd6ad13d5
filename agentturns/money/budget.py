"""The budget of one turn: what is spent, what limits it, what is exceeded, which raise is sound.

Pure: everything comes from the turn's own columns, the declared limits and ``now``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from django.utils import timezone

from agentturns.conf import conf
from agentturns.definitions.agent import registered_agents
from agentturns.definitions.limits import CAPS, CapValue, Limits, Standing, breach_policy, resolve
from agentturns.exceptions import InvalidBudget

UNPRICED: Final = "unpriced"
# The order in which verdicts are given where several caps are exceeded at once.
ORDER: Final = (
    "max_input_tokens",
    "max_new_input_tokens",
    "max_output_tokens",
    "max_cost",
    UNPRICED,
    "timeout",
    "max_tool_calls",
    "max_steps",
)


class Metered(Protocol):
    """The columns of a turn that a budget reads."""

    status: Any
    agent: Any
    limits: Any
    budget_overrides: Any
    input_tokens: Any
    cached_input_tokens: Any
    output_tokens: Any
    cost: Any
    presumed_cost: Any
    unpriced_steps: Any
    tool_call_count: Any
    tool_calls_waiting: Any
    step_count: Any
    stretch_seconds: Any
    active_since: Any


def sources(turn: Metered) -> tuple[tuple[str, Limits], ...]:
    """The turn's limits in order of precedence: override, turn, agent (as declared today), settings."""
    agent = registered_agents().get(turn.agent)
    return (
        ("override", Limits.of(turn.budget_overrides)),
        ("turn", Limits.of(turn.limits)),
        ("agent", agent.limits if agent else Limits()),
        ("settings", Limits.of(conf.DEFAULT_LIMITS)),
    )


def standing(turn: Metered, cap: str) -> Standing:
    """The limit of ``cap`` in force and where it comes from."""
    return resolve(cap, *sources(turn))


def limit_for(turn: Metered, cap: str) -> CapValue | None:
    """The limit in force: USD as ``Decimal``, tokens and counts as ``int``, ``timeout`` in seconds; None is none."""
    return standing(turn, cap).value


def policy_for(turn: Metered, cap: str) -> str:
    """``"park"`` or ``"fail"``: what a breach of ``cap`` does to this turn."""
    return breach_policy(cap, *(limits for _, limits in sources(turn)))


def spent_on(turn: Metered, cap: str, *, now: datetime | None = None) -> CapValue:
    """What the turn has used of ``cap``: USD as ``Decimal``, tokens and counts as ``int``, ``timeout`` in seconds."""
    match cap:
        case "max_input_tokens":
            return turn.input_tokens
        case "max_new_input_tokens":
            return turn.input_tokens - turn.cached_input_tokens
        case "max_output_tokens":
            return turn.output_tokens
        case "max_cost":
            return turn.cost + turn.presumed_cost
        case "timeout":
            return stretch(turn, now=now)
        case "max_tool_calls":
            return turn.tool_call_count
        case "max_steps":
            return turn.step_count
    raise InvalidBudget(f"Unknown cap {cap!r}; the caps are {', '.join(CAPS)}.", cap=cap)


def stretch(turn: Metered, *, now: datetime | None = None) -> float:
    """Active seconds since a person last resumed the turn; while it runs, up to ``now``."""
    if turn.status != "running" or turn.active_since is None:
        return turn.stretch_seconds
    running: timedelta = (now or timezone.now()) - turn.active_since
    return turn.stretch_seconds + max(0.0, running.total_seconds())


def exceeded_reason(turn: Metered, limits: Limits | None = None, *, now: datetime | None = None) -> str | None:
    """The first cap that stops this turn, ``"unpriced"``, or None when it may go on.

    Tokens, cost and time are exceeded when spent is above the limit. Counted caps are asked before the next unit:
    exceeded when one more is wanted and spent has reached the limit. ``limits`` replaces the limits in force.
    """
    found = sources(turn) if limits is None else (("given", limits),)
    return next((cap for cap in ORDER if _exceeded(turn, cap, found, now)), None)


def _exceeded(turn: Metered, cap: str, found: tuple[tuple[str, Limits], ...], now: datetime | None) -> bool:
    if cap == UNPRICED:
        capped = resolve("max_cost", *found).value is not None
        return capped and turn.unpriced_steps > 0 and resolve(UNPRICED, *found).value != "allow"
    limit = resolve(cap, *found).value
    if limit is None:
        return False
    if cap == "max_tool_calls":
        return turn.tool_calls_waiting > 0 and turn.tool_call_count >= limit
    if cap == "max_steps":
        wants_step = turn.status != "completed" and turn.tool_calls_waiting == 0
        return wants_step and turn.step_count >= limit
    return spent_on(turn, cap, now=now) > limit


def check_raise(turn: Metered, caps: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The changes ``{cap: (old, new)}`` of a sound raise. Raises ``InvalidBudget`` for one that is not.

    Each new value is above what is spent and above today's limit, and together they clear every breach except
    ``timeout``, which the resume starts anew.
    """
    if not caps:
        raise InvalidBudget("Nothing to raise: name a cap and its new value, such as max_cost='0.50'.")
    changes: dict[str, tuple[Any, Any]] = {}
    for cap, value in caps.items():
        changes[cap] = _raised(turn, cap, value)
    left = _left_over(turn, {cap: new for cap, (_, new) in changes.items()})
    if left == UNPRICED:
        raise InvalidBudget(
            f"{_steps(turn.unpriced_steps)} of this turn has no known price, so max_cost cannot be kept; "
            "add unpriced='allow' to let this turn go on without it.",
            cap=UNPRICED,
        )
    if left is not None:
        spent, limit = spent_on(turn, left), limit_for(turn, left)
        raise InvalidBudget(
            f"{left} is exceeded too ({_figures(turn, left, spent, limit)}); raise it in the same call.",
            cap=left,
            spent=spent,
            limit=limit,
        )
    return changes


def _raised(turn: Metered, cap: str, value: Any) -> tuple[Any, Any]:
    if cap == UNPRICED:
        if value != "allow":
            raise InvalidBudget(f"unpriced={value!r} is not a raise; the only one is 'allow'.", cap=cap, value=value)
        return standing(turn, cap).value or "park", "allow"
    spent, limit, new = _parsed(turn, cap, value)
    if limit is None:
        raise InvalidBudget(f"{cap} has no limit on this turn, so there is nothing to raise.", cap=cap, value=value)
    if new <= spent or new <= limit:
        raise InvalidBudget(
            f"{cap}={CAPS[cap].show(new)} is not above what stands ({_figures(turn, cap, spent, limit)}); "
            f"give a value above {CAPS[cap].show(max(spent, limit))}.",
            cap=cap,
            value=new,
            spent=spent,
            limit=limit,
        )
    return limit, new


def _parsed(turn: Metered, cap: str, value: Any) -> tuple[Any, Any, Any]:
    if cap not in CAPS:
        raise InvalidBudget(f"Unknown cap {cap!r}; the caps are {', '.join(CAPS)}.", cap=cap, value=value)
    spent, limit = spent_on(turn, cap), limit_for(turn, cap)
    try:
        new = CAPS[cap].parse(value)
    except ValueError as error:
        raise InvalidBudget(str(error), cap=cap, value=value, spent=spent, limit=limit) from None
    if new is None:
        raise InvalidBudget(f"{cap}=None is not a value; give a number.", cap=cap, spent=spent, limit=limit)
    return spent, limit, new


def _left_over(turn: Metered, new: Mapping[str, Any]) -> str | None:
    """The first cap still exceeded once ``new`` is in force and the clock starts anew."""
    found = (("override", Limits.of({**turn.budget_overrides, **new})), *sources(turn)[1:])
    return next((cap for cap in ORDER if cap != "timeout" and _exceeded(turn, cap, found, None)), None)


def check_lower(turn: Metered, caps: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The changes ``{cap: (old, new)}`` of a sound lowering. Raises ``InvalidBudget`` for one that is not."""
    if not caps:
        raise InvalidBudget("Nothing to lower: name a cap and its new value, such as max_cost='0.10'.")
    changes: dict[str, tuple[Any, Any]] = {}
    for cap, value in caps.items():
        spent, limit, new = _parsed(turn, cap, value)
        if new < spent or (limit is not None and new >= limit):
            raise InvalidBudget(
                f"{cap}={CAPS[cap].show(new)} does not lower it ({_figures(turn, cap, spent, limit)}); "
                "give a value below the limit and not below what is spent.",
                cap=cap,
                value=new,
                spent=spent,
                limit=limit,
            )
        changes[cap] = (limit, new)
    return changes


def shown_spent(turn: Metered, cap: str, spent: CapValue) -> str:
    """What is spent as people read it, saying of money how many steps are missing from it for want of a price."""
    shown = CAPS[cap].show(spent)
    if cap != "max_cost" or not turn.unpriced_steps:
        return shown
    steps = "1 unpriced step" if turn.unpriced_steps == 1 else f"{turn.unpriced_steps} unpriced steps"
    return f"{shown} + {steps}" if spent else f"an unknown amount ({steps})"


def _figures(turn: Metered, cap: str, spent: CapValue, limit: CapValue | None) -> str:
    shown = "no limit" if limit is None else f"limit {CAPS[cap].show(limit)}"
    return f"spent {shown_spent(turn, cap, spent)}, {shown}"


def _steps(count: int) -> str:
    return "One step" if count == 1 else f"{count} steps"
