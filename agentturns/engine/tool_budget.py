"""The one owner of a turn's tool-call budget: how many of a batch may be taken up, and what the model is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from agentturns.exceptions import ToolLimitExceeded

# Said to the model when so many calls or fewer are left; {remaining} is the true number, {maximum} the cap.
NOTICES: Final[dict[int, str]] = {
    10: (
        "[Tool budget: {remaining} of {maximum} tool calls are left. Start to converge: plan the calls you still need "
        "and work towards your answer.]"
    ),
    5: (
        "[Tool budget: {remaining} of {maximum} tool calls are left. Drop everything optional and keep only the calls "
        "that the answer cannot do without.]"
    ),
    2: (
        "[Tool budget: {remaining} of {maximum} tool calls are left. Answer now with what you have and start nothing "
        "new.]"
    ),
}


@dataclass(frozen=True, slots=True)
class BudgetWarning:
    """One notice to the model: the threshold crossed and the sentence, stored as it is worded here."""

    threshold: int
    text: str


@dataclass(slots=True)
class TurnBudget:
    """A turn's tool calls: ``used`` were taken up, ``maximum`` may be (None is no limit)."""

    maximum: int | None
    used: int = 0

    @property
    def remaining(self) -> int | None:
        """Calls that may still be taken up, None without a limit."""
        return None if self.maximum is None else max(0, self.maximum - self.used)

    def fitting(self, wanted: int) -> int:
        """How many of ``wanted`` further calls fit, in position order."""
        return wanted if self.remaining is None else min(wanted, self.remaining)

    def take_up(self, calls: int = 1) -> None:
        """Count ``calls`` as taken up. Raises ``ToolLimitExceeded`` when they do not fit."""
        if self.fitting(calls) < calls:
            raise ToolLimitExceeded(f"{calls} more tool calls asked, {self.remaining} of {self.maximum} left.")
        self.used += calls

    def warning(self, spoken: Iterable[int]) -> BudgetWarning | None:
        """What a closed batch gives to say, once ``spoken`` thresholds were said for this cap.

        The lowest threshold crossed speaks and spends the higher ones; one that is not below the cap never speaks.
        """
        if self.maximum is None or self.remaining is None:
            return None
        lowest_spoken = min(spoken, default=self.maximum)
        crossed = [limit for limit in NOTICES if self.remaining <= limit < min(lowest_spoken, self.maximum)]
        if not crossed:
            return None
        threshold = min(crossed)
        return BudgetWarning(threshold, NOTICES[threshold].format(remaining=self.remaining, maximum=self.maximum))
