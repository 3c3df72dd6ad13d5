"""A turn whose worker died: what the next worker counts, presumes, keeps and refuses."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import F

from agentturns import Agent, LeaseLost, Limits, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.models.claims import Claim, claim
from agentturns.models.clock import database_now
from agentturns.money.budget import exceeded_reason
from agentturns.providers.scripted import ScriptedModel, reply

pytestmark = pytest.mark.django_db(transaction=True)


class Died(BaseException):
    """Ends a run as a dying process would: nothing more is written."""


def dying(*script: Any) -> ScriptedModel:
    """A model that replies as the script says; ``Died`` in it kills the worker inside the call."""
    replies = iter(script)

    def speak(request: Any) -> Any:
        line = next(replies)
        if line is Died:
            raise Died
        return line

    return ScriptedModel(speak)


def expire(turn: Turn, *, renewed: float = 0, gone: float = 3600) -> None:
    """The lease was last renewed ``renewed`` seconds after the claim; the worker has been away for ``gone`` seconds."""
    Turn.objects.filter(pk=turn.pk).update(active_since=database_now() - timedelta(seconds=renewed + gone))
    Turn.objects.filter(pk=turn.pk).update(lease_renewed_at=F("active_since") + timedelta(seconds=renewed))
    Turn.objects.filter(pk=turn.pk).update(lease_expires_at=F("lease_renewed_at") + timedelta(seconds=60))


def taken(turn: Turn, owner: str = "a worker") -> Claim:
    held = claim(turn.pk, owner)
    assert held is not None
    return held


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    return text


def test_a_model_call_lost_with_its_worker_is_presumed_billed_and_made_again() -> None:
    agent = Agent(name="tester", model=dying(Died, reply("done", cost="0.04")), instructions="…")
    turn = agent.start("go")
    with pytest.raises(Died):
        run_turn(turn.pk)
    turn.steps.update(estimate=Decimal("0.07"))
    expire(turn)

    turn = run_turn(turn.pk)
    step = turn.steps.get()
    assert (turn.status, turn.cost, turn.presumed_cost) == ("completed", Decimal("0.04"), Decimal("0.07"))
    assert (step.attempts, step.presumed_cost, turn.attempt, turn.crashes) == (2, Decimal("0.07"), 2, 0)
    assert turn.spent("max_cost") == Decimal("0.11")


def test_a_presumed_cost_counts_before_the_next_call_is_made() -> None:
    model = dying(Died, reply("never"))
    agent = Agent(name="tester", model=model, instructions="…", limits=Limits(max_cost="0.05"))
    turn = agent.start("go")
    with pytest.raises(Died):
        run_turn(turn.pk)
    turn.steps.update(estimate=Decimal("0.07"))
    expire(turn)
    turn = run_turn(turn.pk)
    assert (turn.status, turn.park_reason, len(model.requests)) == ("parked", "max_cost", 1)


def test_a_crash_resume_keeps_the_stretch_and_does_not_count_the_time_without_a_worker() -> None:
    agent = Agent(name="tester", model=dying(Died), instructions="…", limits=Limits(timeout=120))
    turn = agent.start("go")
    with pytest.raises(Died):
        run_turn(turn.pk)
    expire(turn, renewed=50, gone=7200)
    held = taken(turn)
    turn.refresh_from_db()
    assert turn.stretch_seconds == pytest.approx(50, abs=0.01)
    assert turn.active_seconds == pytest.approx(50, abs=0.01)
    assert exceeded_reason(held.turn) is None

    expire(turn, renewed=71, gone=7200)
    assert exceeded_reason(taken(turn).turn) == "timeout"


def test_a_lease_that_has_not_expired_is_not_taken_over() -> None:
    agent = Agent(name="tester", model="scripted:none", instructions="…")
    turn = agent.start("go")
    taken(turn, "first")
    assert claim(turn.pk, "second") is None


def test_the_worker_that_lost_its_turn_can_write_nothing_more() -> None:
    agent = Agent(name="tester", model="scripted:none", instructions="…")
    turn = agent.start("go")
    first = taken(turn, "first")
    expire(turn)
    second = taken(turn, "second")
    with pytest.raises(LeaseLost):
        first.fence(step_count=9)
    with pytest.raises(LeaseLost):
        first.require()
    second.fence()
    turn.refresh_from_db()
    assert (turn.step_count, turn.lease_owner, turn.attempt) == (0, "second", 2)


def test_the_last_allowed_step_is_asked_again_after_its_worker_died() -> None:
    agent = Agent(name="tester", model=dying(Died, reply("done")), instructions="…", limits=Limits(max_steps=1))
    turn = agent.start("go")
    with pytest.raises(Died):
        run_turn(turn.pk)
    expire(turn)
    turn = run_turn(turn.pk)
    assert (turn.status, turn.step_count) == ("completed", 1)


def test_three_deaths_without_progress_park_the_turn_and_a_retry_lets_it_go_on() -> None:
    agent = Agent(name="tester", model=dying(Died, Died, Died, reply("done")), instructions="…")
    turn = agent.start("go")
    for _ in range(3):
        with pytest.raises(Died):
            run_turn(turn.pk)
        expire(turn)
    turn = run_turn(turn.pk)
    assert (turn.status, turn.park_reason, turn.crashes) == ("parked", "crash_loop", 3)
    assert "died 3 times without progress" in turn.waiting_for
    turn.retry()
    assert turn.crashes == 0
    assert run_turn(turn.pk).status == "completed"


def test_progress_between_deaths_is_no_crash_loop() -> None:
    asks = [reply(tool_calls=[("note", {"text": str(number)})]) for number in range(4)]
    lives = [line for ask in asks for line in (ask, Died)]
    agent = Agent(name="tester", model=dying(*lives, reply("done")), instructions="…", tools=[note])
    turn = agent.start("go")
    for _ in range(4):
        with pytest.raises(Died):
            run_turn(turn.pk)
        expire(turn)
    turn = run_turn(turn.pk)
    assert (turn.status, turn.step_count) == ("completed", 5)
