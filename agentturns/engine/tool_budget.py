"""The one owner of a turn's tool-call budget: how many of a batch may be taken up."""

from __future__ import annotations

from dataclasses import dataclass

from agentturns.exceptions import ToolLimitExceeded


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
