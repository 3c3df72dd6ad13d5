"""Retrying a turn: out of which states it leads, what it sets back, when it comes too late."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.exceptions import PermissionDenied

from agentturns import Agent, Conflict, InvalidBudget, Limits, Turn, tool
from agentturns.definitions.agent import _registry
from agentturns.engine.runner import run_turn
from agentturns.providers.base import Fault, ProviderError
from agentturns.providers.scripted import ScriptedModel, reply
from agentturns.signals import turn_resumed
from tests.lost_workers import Died, run_until_death
from tests.models.conftest import Bells
from tests.people import user_who_may
from tests.rivals import at_once

pytestmark = pytest.mark.django_db(transaction=True)

REFUSED = ProviderError("The key is wrong; set another one.", fault=Fault.PERMANENT, code="invalid_api_key")
CUT = reply("half", stop_reason="max_tokens")


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    return text


@tool(approval="always")
def pay(order: str) -> str:
    """Pay."""
    return "paid"


def turn_of(*script: Any, **limits: Any) -> tuple[Turn, ScriptedModel]:
    model = ScriptedModel(list(script))
    agent = Agent(name="tester", model=model, instructions="…", tools=[note, pay], limits=Limits(**limits))
    return agent.start("go"), model


def asks(name: str = "note", **options: Any) -> Any:
    return reply(tool_calls=[(name, {"text" if name == "note" else "order": "a"})], **options)


def test_a_turn_parked_on_a_provider_error_goes_on_where_it_stopped(bells: Bells) -> None:
    turn, model = turn_of(asks(), REFUSED, reply("done"))
    turn = run_turn(turn.pk)
    assert (turn.status, turn.park_reason, turn.error_code) == ("parked", "provider_error", "invalid_api_key")
    assert turn.waiting_for == "The key is wrong; set another one. Retry once that is mended."

    bells.clear()
    turn.retry(reason="new key")
    assert (turn.status, turn.park_reason, turn.error_code, turn.error_message) == ("queued", "", "", "")
    assert (turn.provider_failures, turn.parked_at, turn.acted_reason) == (0, None, "new key")
    assert bells.rung_for() == [turn.pk]
    turn = run_turn(turn.pk)
    assert (turn.status, turn.answer, turn.tool_calls.count()) == ("completed", "done", 1)
    assert [len(request.messages) for request in model.requests] == [1, 3, 3]


def test_a_turn_whose_agent_is_gone_parks_and_goes_on_once_it_is_declared_again() -> None:
    turn, _ = turn_of(reply("done"))
    agent = _registry.pop("tester")
    turn = run_turn(turn.pk)
    assert (turn.status, turn.park_reason) == ("parked", "agent_missing")
    assert turn.waiting_for == (
        "No agent is named 'tester' in the worker's code; declare it, restart the worker, then retry."
    )
    assert run_turn(turn.retry().pk).park_reason == "agent_missing"
    _registry["tester"] = agent
    assert run_turn(turn.retry().pk).status == "completed"


def test_a_turn_that_crashed_too_often_gets_its_count_and_its_clock_back() -> None:
    deaths = iter([Died, Died, Died])

    def speak(request: Any) -> Any:
        if next(deaths, None):
            raise Died
        return reply("done")

    turn = Agent(name="tester", model=ScriptedModel(speak), instructions="…").start("go")
    for _ in range(3):
        run_until_death(turn)
    turn = run_turn(turn.pk)
    assert (turn.park_reason, turn.crashes) == ("crash_loop", 3)
    turn.retry()
    assert (turn.crashes, turn.stretch_seconds) == (0, 0)
    assert run_turn(turn.pk).status == "completed"


def test_a_failed_turn_goes_on_and_is_finished_anew() -> None:
    turn, _ = turn_of(CUT, reply("whole"))
    turn = run_turn(turn.pk)
    assert (turn.status, turn.answer) == ("failed", "half")
    turn.retry()
    assert (turn.status, turn.finished_at, turn.error_code) == ("queued", None, "")
    assert run_turn(turn.pk).answer == "whole"


def test_a_retry_of_a_turn_that_used_up_its_steps_fails_again_without_a_call() -> None:
    turn, model = turn_of(asks(), asks(), max_steps=1)
    turn = run_turn(turn.pk)
    assert (turn.status, turn.error_code) == ("failed", "max_steps")
    turn = run_turn(turn.retry().pk)
    assert (turn.status, turn.error_code, len(model.requests)) == ("failed", "max_steps", 1)


@pytest.mark.parametrize(
    ("script", "limits", "state"),
    [
        ([reply("done")], {}, "completed"),
        ([asks(cost="5"), reply("done")], {"max_cost": 1}, r"parked \(max_cost\)"),
        ([asks("pay"), reply("done")], {}, r"parked \(approval\)"),
    ],
)
def test_a_turn_that_waits_for_something_else_is_not_retried(script: list[Any], limits: Any, state: str) -> None:
    turn, _ = turn_of(*script, **limits)
    turn = run_turn(turn.pk)
    before = (turn.status, turn.park_reason)
    with pytest.raises(Conflict, match=f"is {state} and is not parked on a fault or failed, so there is nothing to"):
        turn.retry()
    turn.refresh_from_db()
    assert (turn.status, turn.park_reason) == before


def test_queued_and_canceled_turns_are_not_retried() -> None:
    turn, _ = turn_of(reply("done"))
    with pytest.raises(Conflict, match="is queued"):
        turn.retry()
    with pytest.raises(Conflict, match="is canceled"):
        turn.cancel().retry()


def test_a_failed_turn_is_not_retried_once_a_later_one_has_been_claimed() -> None:
    turn, _ = turn_of(CUT, reply("next"))
    turn = run_turn(turn.pk)
    following = turn.session.send("more")
    assert run_turn(following.pk).answer == "next"
    with pytest.raises(Conflict) as late:
        turn.retry()
    assert str(late.value) == (
        f"Turn {turn.pk} failed and turn {following.pk} of the same session has been taken up since, so it cannot go "
        "on; send the request again."
    )
    assert Turn.objects.get(pk=turn.pk).status == "failed"


def test_a_raise_of_a_failed_turn_comes_too_late_as_well() -> None:
    turn, _ = turn_of(asks(), reply("next"), max_steps=1)
    turn = run_turn(turn.pk)
    run_turn(turn.session.send("more").pk)
    with pytest.raises(Conflict, match="has been taken up since, so it cannot go on"):
        turn.raise_budget(max_steps=5)
    assert turn.budget_changes.count() == 0


def test_a_revived_turn_runs_before_the_later_ones_of_its_session() -> None:
    turn, _ = turn_of(CUT, reply("first"), reply("second"))
    turn = run_turn(turn.pk)
    following = turn.session.send("more")
    turn.retry()
    assert run_turn(following.pk).status == "queued"
    assert following.waiting_for == f"Waits for turn {turn.pk} of the same session, which is queued."
    assert run_turn(turn.pk).answer == "first"
    assert run_turn(following.pk).answer == "second"


def test_a_revival_and_the_claim_of_a_later_turn_at_once_never_both_happen() -> None:
    for number in range(10):
        model = ScriptedModel([CUT, reply("a"), reply("b")])
        agent = Agent(name=f"tester {number}", model=model, instructions="…")
        turn = run_turn(agent.start("go").pk)
        following = turn.session.send("more")
        revived, ran = at_once(turn.retry, partial(run_turn, following.pk))
        assert not isinstance(ran, Exception), ran
        turn.refresh_from_db()
        if isinstance(revived, Conflict):
            assert (turn.status, ran.status) == ("failed", "completed")
        else:
            assert (turn.status, Turn.objects.get(pk=following.pk).status) == ("queued", "queued")


def test_a_retry_asks_for_its_permission_is_logged_and_signalled() -> None:
    turn, _ = turn_of(REFUSED, reply("done"))
    turn = run_turn(turn.pk)
    with pytest.raises(PermissionDenied) as refused:
        turn.retry(by=user_who_may("cancel_turn", name="bob"))
    assert str(refused.value) == "bob may not retry a turn; it takes the permission agentturns.retry_turn."

    heard: list[str] = []

    def note_resume(turn: Turn, **_: Any) -> None:
        heard.append(Turn.objects.get(pk=turn.pk).status)

    turn_resumed.connect(note_resume)
    turn.retry(by=user_who_may("retry_turn"), reason="new key")
    turn_resumed.disconnect(note_resume)
    assert heard == ["queued"]
    assert turn.acted_by == "ann"
    assert LogEntry.objects.get().change_message == "Retried. new key"


def test_of_several_who_retry_one_wins(bells: Bells) -> None:
    turn, _ = turn_of(REFUSED, reply("done"))
    turn = run_turn(turn.pk)
    bells.clear()
    outcomes = at_once(*(Turn.objects.get(pk=turn.pk).retry for _ in range(8)))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict"] * 7 + ["Turn"]
    assert bells.rung_for() == [turn.pk]


def test_a_raise_of_a_turn_that_failed_otherwise_is_a_conflict() -> None:
    turn, _ = turn_of(CUT)
    turn = run_turn(turn.pk)
    with pytest.raises(Conflict, match="is failed and is not waiting for a budget"):
        turn.raise_budget(max_cost=1)


def test_a_turn_failed_by_its_call_limit_goes_on_after_a_raise() -> None:
    turn, model = turn_of(
        reply(tool_calls=[("note", {"text": text}) for text in "ab"]),
        reply("done"),
        max_tool_calls=1,
        on_breach={"max_tool_calls": "fail"},
    )
    turn = run_turn(turn.pk)
    assert (turn.error_code, turn.waiting_for) == (
        "tool_limit",
        "Failed: spent 1 call of max_tool_calls 1 call. Raise it to go on where it stopped.",
    )
    with pytest.raises(InvalidBudget):
        turn.raise_budget(max_tool_calls=1)
    turn = run_turn(turn.raise_budget(max_tool_calls=2).pk)
    assert (turn.status, len(model.requests)) == ("completed", 2)
