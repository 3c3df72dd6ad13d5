"""A turn that goes in circles, and the shares of a budget at which the model is told."""

from __future__ import annotations

from typing import Any

import pytest

from agentturns import Agent, ConfigurationError, Limits, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply

pytestmark = pytest.mark.django_db(transaction=True)

runs: list[str] = []


@pytest.fixture(autouse=True)
def no_runs() -> None:
    runs.clear()


@tool(effect="idempotent")
def look(where: str) -> str:
    """Look."""
    runs.append(where)
    return f"nothing in {where}"


def asks(*places: str, **options: Any) -> Any:
    return reply(tool_calls=[("look", {"where": place}) for place in places], **options)


def run(*script: Any, **limits: Any) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel([*script])
    agent = Agent(name="tester", model=model, instructions="…", tools=[look], limits=Limits(**limits))
    return run_turn(agent.start("go").pk), model


def test_the_same_call_as_often_as_allowed_is_told_and_once_more_parks_before_it_runs() -> None:
    turn, model = run(asks("a"), asks("a"), asks("a"), asks("a"), reply("done"), max_tool_repeat=3)
    assert (turn.status, turn.park_reason, runs) == ("parked", "tool_loop", ["a", "a", "a"])
    assert turn.waiting_for == (
        "The model asked for look with the same arguments more than 3 times in a row; retry to let it run once more, "
        "or cancel."
    )
    assert model.requests[3].messages[-1]["content"].startswith("[You have asked for look 3 times in a row")
    assert turn.notices.count() == 1

    turn = run_turn(turn.retry().pk)
    assert (turn.status, runs) == ("completed", ["a"] * 4)


def test_a_call_that_is_let_through_begins_the_count_anew() -> None:
    turn, _ = run(*[asks("a")] * 6, reply("done"), max_tool_repeat=2)
    assert (turn.park_reason, len(runs)) == ("tool_loop", 2)
    turn = run_turn(turn.retry().pk)
    assert (turn.park_reason, len(runs)) == ("tool_loop", 4)


def test_other_arguments_between_are_no_loop() -> None:
    turn, _ = run(asks("a"), asks("a"), asks("b"), asks("a"), asks("a"), reply("done"), max_tool_repeat=2)
    assert (turn.status, runs) == ("completed", ["a", "a", "b", "a", "a"])


def test_a_loop_within_one_batch_runs_what_is_allowed_and_parks_before_the_rest() -> None:
    turn, _ = run(asks("a", "a", "a", "b"), reply("done"), max_tool_repeat=2)
    assert (turn.park_reason, runs) == ("tool_loop", ["a", "a"])
    turn = run_turn(turn.retry().pk)
    assert (turn.status, runs) == ("completed", ["a", "a", "a", "b"])


def test_without_the_limit_nothing_is_counted() -> None:
    turn, _ = run(*[asks("a")] * 6, reply("done"))
    assert (turn.status, turn.notices.count()) == ("completed", 0)


def test_the_model_is_told_once_for_each_share_of_each_axis() -> None:
    turn, model = run(
        asks("a", cost="0.50", input_tokens=10),
        asks("b", cost="0.31", input_tokens=10),
        asks("c", cost="0.05", input_tokens=10),
        asks("d", cost="0.10", input_tokens=65),
        reply("done"),
        max_cost=1,
        max_input_tokens=100,
        warn_at=(0.8, 0.95),
    )
    assert turn.status == "completed"
    assert [(notice.after_step, notice.cap, notice.threshold) for notice in turn.notices.order_by("pk")] == [
        (2, "max_cost", "0.8"),
        (4, "max_input_tokens", "0.95"),
        (4, "max_cost", "0.95"),
    ]
    assert model.requests[2].messages[-1]["content"] == (
        "[Budget: $0.81 of $1.00 is used up (cost, 81%). Work towards your answer and leave out what is optional.]"
    )


def test_the_highest_share_reached_speaks_and_spends_the_lower() -> None:
    turn, _ = run(asks("a", cost="0.96"), asks("b", cost="0.01"), reply("done"), max_cost=1, warn_at=(0.8, 0.95))
    assert [notice.threshold for notice in turn.notices.all()] == ["0.95"]


@pytest.mark.parametrize(
    "limits", [{"warn_at": (80,)}, {"warn_at": 0.8}, {"max_tool_repeat": 0}, {"max_tool_repeat": 2.5}]
)
def test_a_wrong_value_is_refused_where_it_is_declared(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(limits))):
        Limits(**limits)
