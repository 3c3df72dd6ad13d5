"""What the model is told about its budget after a batch: each notice once, stored as it is worded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from agentturns.definitions.limits import CAPS, CapValue
from agentturns.engine.tool_budget import TurnBudget
from agentturns.models.tool_call import ToolCall

# Axes that Limits(warn_at=…) speaks of, as the model reads them.
WARNED: Final = {
    "max_input_tokens": "input tokens",
    "max_cost": "cost",
    "timeout": "time",
    "max_steps": "steps",
}
SHARE_NOTICE: Final = (
    "[Budget: {spent} of {limit} is used up ({axis}, {percent}%). Work towards your answer and leave out what is "
    "optional.]"
)
REPEAT_NOTICE: Final = (
    "[You have asked for {tool} {count} times in a row with the same arguments. The result will not change: use what "
    "you have, change the arguments, or answer. One more such call stops this turn.]"
)


@dataclass(frozen=True, slots=True)
class Saying:
    """One notice: ``kind``, ``cap``, ``limit_value`` and ``threshold`` are what it is said once for."""

    kind: str
    cap: str
    limit_value: str
    threshold: str
    text: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes two notices the same."""
        return self.kind, self.cap, self.limit_value, self.threshold


Said = set[tuple[str, str, str, str]]


def of_tool_budget(budget: TurnBudget, said: Said) -> Iterator[Saying]:
    """The tool budget's notice for a closed batch, if one is due."""
    limit = str(budget.maximum)
    spoken = [int(threshold) for kind, _, value, threshold in said if kind == "tool_budget" and value == limit]
    warning = budget.warning(spoken)
    if warning is not None:
        yield Saying("tool_budget", "max_tool_calls", limit, str(warning.threshold), warning.text)


def of_share(cap: str, spent: CapValue, limit: CapValue, shares: Sequence[float], said: Said) -> Iterator[Saying]:
    """The notice for the highest of ``shares`` that ``spent`` has reached; it spends the lower ones."""
    if not limit or spent > limit:
        return
    used = Decimal(str(spent)) / Decimal(str(limit))
    reached = [share for share in shares if used >= Decimal(str(share))]
    spoken = [float(share) for kind, name, value, share in said if (kind, name, value) == ("share", cap, str(limit))]
    if reached and max(reached) > max(spoken, default=0.0):
        yield Saying(
            "share",
            cap,
            str(limit),
            str(max(reached)),
            SHARE_NOTICE.format(
                spent=CAPS[cap].show(spent),
                limit=CAPS[cap].show(limit),
                axis=WARNED[cap],
                percent=int(100 * used),
            ),
        )


def of_repeat(call: ToolCall, count: int, most: int, said: Said) -> Iterator[Saying]:
    """The notice for a call that repeats the ones before it as often as is allowed."""
    if count < most:
        return
    saying = Saying(
        "tool_repeat",
        "max_tool_repeat",
        call.arguments_hash[:40],
        f"{call.step_id}.{call.position}",
        REPEAT_NOTICE.format(tool=call.name, count=count),
    )
    if saying.key not in said:
        yield saying
