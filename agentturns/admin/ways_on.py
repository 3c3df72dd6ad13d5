"""What a person can do to a turn now: which buttons a page offers. The verbs themselves decide again, under lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentturns.admin.budget_panel import held_by_budget
from agentturns.models import Turn
from agentturns.models.states import DECISION_REASONS, RETRY_REASONS

RAISE = "agentturns.raise_budget"
CANCEL = "agentturns.cancel_turn"
RETRY = "agentturns.retry_turn"
DECIDE = "agentturns.decide_toolcall"


@dataclass(frozen=True, slots=True)
class WaysOn:
    """Which verbs fit the turn's state and the user's permissions."""

    raise_budget: bool
    lower_budget: bool
    decide: bool
    retry: bool
    cancel: bool

    @property
    def any(self) -> bool:
        """Whether there is anything to press."""
        return self.raise_budget or self.lower_budget or self.decide or self.retry or self.cancel


def ways_on(turn: Turn, user: Any) -> WaysOn:
    """The verbs open to ``user`` on ``turn``. Costs no query beyond the user's permissions, which are cached."""
    unfinished = not turn.is_finished
    return WaysOn(
        raise_budget=held_by_budget(turn) and user.has_perm(RAISE),
        lower_budget=unfinished and user.has_perm(RAISE),
        decide=unfinished and turn.park_reason in DECISION_REASONS and user.has_perm(DECIDE),
        retry=_retriable(turn) and user.has_perm(RETRY),
        cancel=unfinished and turn.cancel_requested_at is None and user.has_perm(CANCEL),
    )


def _retriable(turn: Turn) -> bool:
    if turn.status == Turn.Status.FAILED:
        return not held_by_budget(turn)  # it would fail on the same budget again
    return turn.status == Turn.Status.PARKED and turn.park_reason in RETRY_REASONS
