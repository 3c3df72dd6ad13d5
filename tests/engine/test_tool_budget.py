"""What the model is told of its tool budget: which threshold speaks, where, how often."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentturns import Agent, Limits, tool
from agentturns.engine.runner import run_turn
from agentturns.engine.tool_budget import NOTICES, TurnBudget
from agentturns.engine.transcript import Transcript
from agentturns.providers.scripted import ScriptedModel, reply
from agentturns.signals import tool_budget_warned


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    return text


def asks(count: int, **options: Any) -> Any:
    return reply(tool_calls=[("note", {"text": "x"})] * count, **options)


def run(*batches: int, cap: int | None) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel([*(asks(count) for count in batches), reply("done")])
    agent = Agent(
        name="tester", model=model, instructions="…", tools=[note], limits=Limits(max_tool_calls=cap, max_steps=None)
    )
    return run_turn(agent.start("go").pk), model


def told(turn: Any) -> list[tuple[int, str, str]]:
    return [(notice.after_step, notice.limit_value, notice.threshold) for notice in turn.notices.order_by("pk")]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("cap", "batches", "expected"),
    [
        (None, [5, 5], []),
        (20, [9], []),
        (20, [10], [(1, "20", "10")]),
        (20, [1] * 19, [(10, "20", "10"), (15, "20", "5"), (18, "20", "2")]),
        (20, [16], [(1, "20", "5")]),
        (20, [12, 7], [(1, "20", "10"), (2, "20", "2")]),
        (20, [19, 1], [(1, "20", "2")]),
        (10, [1], []),  # a threshold that is not below the cap never speaks
        (10, [5], [(1, "10", "5")]),
        (3, [1], [(1, "3", "2")]),
        (2, [1], []),
        (6, [6], [(1, "6", "2")]),
    ],
)
def test_the_lowest_threshold_that_a_batch_crossed_speaks_once(
    cap: int | None, batches: list[int], expected: list[tuple[int, str, str]]
) -> None:
    turn, _ = run(*batches, cap=cap)
    assert turn.status == "completed"
    assert told(turn) == expected


@pytest.mark.django_db(transaction=True)
def test_the_sentence_states_the_true_number_left_after_the_whole_batch() -> None:
    turn, model = run(8, 4, cap=20)
    assert turn.status == "completed"
    roles = [message["role"] for message in model.requests[2].messages]
    assert roles == ["user", "assistant", *["tool"] * 8, "assistant", *["tool"] * 4, "user"]
    assert model.requests[2].messages[-1]["content"] == NOTICES[10].format(remaining=8, maximum=20)
    assert model.requests[2].messages[-1]["content"].startswith("[Tool budget: 8 of 20 tool calls are left.")
    assert list(model.requests[2]._messages) == Transcript(turn).messages


@pytest.mark.django_db(transaction=True)
def test_a_raised_cap_speaks_anew_and_a_batch_larger_than_the_budget_cannot_be_warned() -> None:
    turn, model = run(8, cap=6)
    assert (turn.park_reason, told(turn)) == ("max_tool_calls", [])
    turn = run_turn(turn.raise_budget(max_tool_calls=8).pk)
    assert (turn.status, told(turn)) == ("completed", [(1, "8", "2")])
    assert "0 of 8" in model.requests[1].messages[-1]["content"]


@pytest.mark.django_db(transaction=True)
def test_a_park_between_the_notice_and_the_next_call_neither_forgets_nor_repeats_it() -> None:
    model = ScriptedModel([asks(6, cost="1"), reply("done")])
    limits = Limits(max_tool_calls=8, max_cost="0.5")
    agent = Agent(name="tester", model=model, instructions="…", tools=[note], limits=limits)
    turn = run_turn(agent.start("go").pk)
    assert (turn.park_reason, told(turn)) == ("max_cost", [(1, "8", "2")])
    turn = run_turn(turn.raise_budget(max_cost=2).pk)
    assert (turn.status, told(turn)) == ("completed", [(1, "8", "2")])
    assert "2 of 8" in model.requests[1].messages[-1]["content"]


@pytest.mark.django_db(transaction=True)
def test_each_notice_is_signalled_with_its_threshold() -> None:
    heard: list[tuple[int, int]] = []

    def listen(sender: Any, remaining: int, max: int, **_: Any) -> None:
        heard.append((remaining, max))

    tool_budget_warned.connect(listen)
    try:
        run(16, cap=20)
    finally:
        tool_budget_warned.disconnect(listen)
    assert heard == [(5, 20)]


def rule(cap: int, batches: list[int]) -> list[tuple[int, int]]:
    """The rule in its own words: which threshold speaks after which batch."""
    used, spent, said = 0, set(), []
    for number, size in enumerate(batches):
        used += size
        crossed = {limit for limit in (10, 5, 2) if limit < cap and cap - used <= limit} - spent
        if crossed:
            said.append((number, min(crossed)))
        spent |= crossed
    return said


@given(cap=st.integers(1, 40), sizes=st.lists(st.integers(1, 12), max_size=20))
def test_any_run_of_batches_follows_the_rule(cap: int, sizes: list[int]) -> None:
    budget, spoken, said = TurnBudget(cap), [], []
    taken = []
    for number, size in enumerate(sizes):
        if budget.fitting(size) < size:
            break
        budget.take_up(size)
        taken.append(size)
        if warning := budget.warning(spoken):
            spoken.append(warning.threshold)
            said.append((number, warning.threshold))
            assert f"{cap - budget.used} of {cap}" in warning.text
    assert said == rule(cap, taken)
