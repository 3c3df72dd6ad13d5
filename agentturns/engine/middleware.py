"""What a project puts around every turn: run once, when a worker first takes the turn up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.db.models import F, Sum

from agentturns.conf import conf, load
from agentturns.definitions.state import TurnState
from agentturns.models.clock import database_now
from agentturns.models.step import Step
from agentturns.models.turn import Turn

Next = Callable[[TurnState], None]


def run_middleware(state: TurnState) -> None:
    """Send the state through ``AGENTTURNS["MIDDLEWARE"]``, the first of which is outermost.

    Each is a factory, given the next callable, of a callable that takes the ``TurnState``, such as a class with
    ``__init__(self, following)`` and ``__call__(self, state)``. It may change ``state.message``, add to
    ``state.turn_context``, set ``skip_side_effects`` or ``requires_approval``, set ``halt_reason`` (the turn fails
    with it) or ``halt_response`` (the turn's answer, without a model call), and calls the next one, or does not.
    """
    chain: Next = _innermost
    for path in reversed(conf.MIDDLEWARE):
        chain = load(path, "MIDDLEWARE")(chain)
    chain(state)


def _innermost(state: TurnState) -> None:
    return None


class EdgeLimiter:
    """Middleware that fails a turn at the door when its session or its agent has had enough for a while.

    ``AGENTTURNS["EDGE_LIMITS"]``: ``{"turns_per_session": (10, 3600), "tokens_per_agent": (1_000_000, 3600)}``, each
    a number and a window in seconds. Counted from rows, so that all workers count together; a turn that is resumed
    passes no door again and is never counted twice.
    """

    def __init__(self, following: Next) -> None:
        self._following = following

    def __call__(self, state: TurnState) -> None:
        state.halt_reason = self._turns(state.turn) or self._tokens(state.turn)
        if not state.halt_reason:
            self._following(state)

    def _turns(self, turn: Turn) -> str:
        most, seconds = conf.EDGE_LIMITS.get("turns_per_session", (None, 0))
        if most is None:
            return ""
        # This turn is among them: it was started by the claim that runs this.
        begun = Turn.objects.filter(session=turn.session_id, started_at__gt=database_now() - timedelta(seconds=seconds))
        if begun.count() <= most:
            return ""
        return f"This session may begin {most} turns in {seconds:,} seconds; try again later."

    def _tokens(self, turn: Turn) -> str:
        most, seconds = conf.EDGE_LIMITS.get("tokens_per_agent", (None, 0))
        if most is None:
            return ""
        steps = Step.objects.filter(
            turn__agent=turn.agent, completed_at__gt=database_now() - timedelta(seconds=seconds)
        )
        used = steps.aggregate(used=Sum(F("input_tokens") + F("output_tokens")))["used"] or 0
        if used < most:
            return ""
        return f"The agent {turn.agent} used {used:,} of {most:,} tokens in {seconds:,} seconds; try again later."
