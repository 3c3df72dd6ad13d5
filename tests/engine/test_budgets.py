"""A turn under each cap: where it stops, what a raise does, what never happens twice."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from agentturns import Agent, Conflict, InvalidBudget, Limits, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply

pytestmark = pytest.mark.django_db(transaction=True)

runs: list[str] = []


@pytest.fixture(autouse=True)
def no_runs() -> None:
    runs.clear()


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    runs.append(text)
    return f"noted {text}"


def asks(*texts: str, **options: Any) -> Any:
    return reply(tool_calls=[("note", {"text": text}) for text in texts], **options)


def agent(*script: Any, **limits: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(list(script))
    return Agent(name="tester", model=model, instructions="Be brief.", tools=[note], limits=Limits(**limits)), model


def test_a_turn_parks_on_its_cost_and_a_raise_resumes_without_calling_the_model_or_a_tool_again() -> None:
    tester, model = agent(
        asks("a", cost="0.10"), asks("b", cost="0.20"), reply("done", cost="0.05"), max_cost=Decimal("0.25")
    )
    turn = run_turn(tester.start("go").pk)

    assert (turn.status, turn.park_reason) == ("parked", "max_cost")
    assert turn.budget_parked
    assert turn.spent("max_cost") == Decimal("0.30")
    assert turn.waiting_for == "Spent $0.30 of max_cost $0.25; raise max_cost to go on."
    assert runs == ["a", "b"]

    turn.raise_budget(max_cost="0.50", reason="worth it")
    assert turn.status == "queued"
    turn = run_turn(turn.pk)

    assert (turn.status, turn.answer) == ("completed", "done")
    assert turn.cost == Decimal("0.35")
    assert runs == ["a", "b"]
    assert len(model.requests) == 3
    model.assert_used()


def test_a_final_answer_that_crosses_the_cap_completes_and_shows_the_overshoot() -> None:
    tester, _ = agent(reply("done", cost="0.40"), max_cost=Decimal("0.25"))
    turn = run_turn(tester.start("go").pk)
    assert (turn.status, turn.spent("max_cost"), turn.limit("max_cost")) == (
        "completed",
        Decimal("0.40"),
        Decimal("0.25"),
    )


@pytest.mark.parametrize(
    ("cap", "limit", "raised"),
    [("max_input_tokens", 100, 1000), ("max_new_input_tokens", 50, 1000), ("max_output_tokens", 10, 1000)],
)
def test_tokens_park_when_spent_is_above_the_limit(cap: str, limit: int, raised: int) -> None:
    tester, _ = agent(
        asks("a", input_tokens=120, cached_input_tokens=40, output_tokens=20), reply("done"), **{cap: limit}
    )
    turn = run_turn(tester.start("go").pk)
    assert turn.park_reason == cap
    assert run_turn(turn.raise_budget(**{cap: raised}).pk).status == "completed"


def test_spending_exactly_the_limit_is_no_breach() -> None:
    tester, _ = agent(asks("a", cost="0.25"), reply("done"), max_cost=Decimal("0.25"))
    assert run_turn(tester.start("go").pk).status == "completed"


def test_zero_is_a_cap_and_none_switches_one_off() -> None:
    tester, _ = agent(asks("a", cost="0.01"), reply("done"), max_cost=0)
    assert run_turn(tester.start("go").pk).park_reason == "max_cost"
    assert run_turn(tester.start("go", limits=Limits(max_cost=None)).pk).status == "completed"


def test_six_of_eight_calls_run_and_a_raise_runs_the_two_that_waited() -> None:
    texts = [str(number) for number in range(8)]
    tester, model = agent(asks(*texts), reply("done"), max_tool_calls=6)
    turn = run_turn(tester.start("go").pk)

    assert (turn.status, turn.park_reason) == ("parked", "max_tool_calls")
    assert (turn.tool_call_count, turn.tool_calls_waiting) == (6, 2)
    assert (
        turn.waiting_for == "Spent 6 calls of max_tool_calls 6 calls, 2 calls waiting; raise max_tool_calls to go on."
    )
    assert runs == texts[:6]
    assert len(model.requests) == 1

    turn = run_turn(turn.raise_budget(max_tool_calls=8).pk)
    assert turn.status == "completed"
    assert runs == texts
    assert [message["content"] for message in model.requests[1].messages if message["role"] == "tool"] == [
        f"noted {text}" for text in texts
    ]


def test_a_used_up_call_budget_still_lets_the_model_answer() -> None:
    tester, _ = agent(asks(*"abcdef"), reply("done"), max_tool_calls=6)
    assert run_turn(tester.start("go").pk).status == "completed"


def test_tool_calls_can_be_set_to_fail() -> None:
    tester, _ = agent(asks("a", "b"), reply("done"), max_tool_calls=1, on_breach={"max_tool_calls": "fail"})
    turn = run_turn(tester.start("go").pk)
    assert (turn.status, turn.error_code) == ("failed", "tool_limit")
    assert [call.status for call in turn.tool_calls.order_by("position")] == ["completed", "refused"]


def test_max_steps_is_exactly_that_many_model_calls_and_a_raise_revives_the_turn() -> None:
    tester, model = agent(asks("a"), asks("b"), asks("c"), reply("done"), max_steps=3)
    turn = run_turn(tester.start("go").pk)
    assert (turn.status, turn.error_code, turn.step_count) == ("failed", "max_steps", 3)
    assert len(model.requests) == 3
    assert "raise it to go on" in turn.waiting_for.lower()

    turn = run_turn(turn.raise_budget(max_steps=4).pk)
    assert (turn.status, turn.answer) == ("completed", "done")
    assert runs == ["a", "b", "c"]


def test_max_steps_can_be_set_to_park() -> None:
    tester, _ = agent(asks("a"), reply("done"), max_steps=1, on_breach={"max_steps": "park"})
    assert run_turn(tester.start("go").pk).park_reason == "max_steps"


def test_an_unpriced_step_under_a_cost_cap_parks_and_a_person_may_allow_it() -> None:
    tester, _ = agent(asks("a", cost=None), reply("done", cost=None), max_cost=1)
    turn = run_turn(tester.start("go").pk)
    assert (turn.park_reason, turn.unpriced_steps) == ("unpriced", 1)
    with pytest.raises(InvalidBudget, match="unpriced='allow'"):
        turn.raise_budget(max_cost=2)
    assert run_turn(turn.raise_budget(unpriced="allow").pk).status == "completed"


def test_unpriced_steps_pass_where_they_are_allowed_or_nothing_caps_the_cost() -> None:
    tester, _ = agent(asks("a", cost=None), reply("done", cost=None), max_cost=1, unpriced="allow")
    assert run_turn(tester.start("go").pk).status == "completed"


def test_worst_case_reserve_parks_before_the_call_that_could_pass_the_cap() -> None:
    tester, model = agent(asks("a", cost="0.10"), reply("done", cost="0.20"), max_cost="0.25", reserve="worst_case")
    turn = run_turn(tester.start("go").pk)
    assert (turn.park_reason, turn.cost, len(model.requests)) == ("max_cost", Decimal("0.10"), 1)
    assert "the next call could cost up to $0.20, $0.15 is left" in turn.waiting_for
    assert run_turn(turn.raise_budget(max_cost="0.31").pk).status == "completed"


def test_precedence_is_override_then_turn_then_agent_then_settings(settings: Any) -> None:
    settings.AGENTTURNS = {"DEFAULT_LIMITS": {"max_steps": 7, "max_output_tokens": 9}}
    tester, _ = agent(reply("done"), max_cost=Decimal("0.25"), max_steps=3)
    turn = tester.start("go", limits=Limits(max_steps=2))
    assert (turn.limit("max_steps"), turn.limit("max_cost"), turn.limit("max_output_tokens")) == (2, Decimal("0.25"), 9)
    turn.lower_budget(max_steps=1)
    assert turn.limit("max_steps") == 1
    assert turn.limit("max_input_tokens") is None


def test_a_lowered_cap_counts_from_the_next_boundary() -> None:
    def script(request: Any) -> Any:
        Turn.objects.get().lower_budget(max_cost="0.10", reason="enough")
        return asks("a", cost="0.20")

    tester = Agent(
        name="lowered", model=ScriptedModel(script), instructions="…", tools=[note], limits=Limits(max_cost=1)
    )
    turn = run_turn(tester.start("go").pk)
    assert (turn.park_reason, turn.limit("max_cost")) == ("max_cost", Decimal("0.10"))


@pytest.mark.parametrize(
    ("caps", "said"),
    [
        ({"max_cost": "0.20"}, "is not above what stands"),
        ({"max_cost": 0.5}, r"money is a Decimal, int or text; write Decimal\('0.5'\)"),
        ({"max_cost": "abc"}, "is not a number"),
        ({"max_cost": Decimal("NaN")}, "not a finite amount"),
        ({"max_cost": None}, "give a number"),
        ({"max_costs": 1}, "Unknown cap 'max_costs'"),
        ({"max_steps": 60}, "max_cost is exceeded too"),
        ({}, "Nothing to raise"),
        ({"max_output_tokens": 10}, "has no limit on this turn"),
    ],
)
def test_an_unsound_raise_is_refused_and_changes_nothing(caps: dict[str, Any], said: str) -> None:
    tester, _ = agent(asks("a", cost="0.30"), reply("done"), max_cost=Decimal("0.25"))
    turn = run_turn(tester.start("go").pk)
    with pytest.raises(InvalidBudget, match=said):
        turn.raise_budget(**caps)
    turn.refresh_from_db()
    assert (turn.status, turn.budget_overrides, turn.budget_changes.count()) == ("parked", {}, 0)


def test_a_raise_must_clear_every_breach_and_names_the_other() -> None:
    tester, _ = agent(
        asks("a", cost="0.30", input_tokens=500), reply("done"), max_cost=Decimal("0.25"), max_input_tokens=100
    )
    turn = run_turn(tester.start("go").pk)
    assert turn.park_reason == "max_input_tokens"
    with pytest.raises(InvalidBudget, match="max_cost is exceeded too") as refused:
        turn.raise_budget(max_input_tokens=1000)
    assert (refused.value.cap, refused.value.spent, refused.value.limit) == (
        "max_cost",
        Decimal("0.30"),
        Decimal("0.25"),
    )
    assert run_turn(turn.raise_budget(max_input_tokens=1000, max_cost=1).pk).status == "completed"


def test_a_raise_on_a_turn_that_is_not_parked_is_a_conflict() -> None:
    tester, _ = agent(reply("done"), max_cost=1)
    turn = tester.start("go")
    with pytest.raises(Conflict, match="is queued and is not waiting for a budget"):
        turn.raise_budget(max_cost=2)
    with pytest.raises(Conflict, match="is completed"):
        run_turn(turn.pk).raise_budget(max_cost=2)


def test_two_hours_parked_do_not_count_as_time() -> None:
    tester, _ = agent(asks("a", cost="0.30"), reply("done"), max_cost=Decimal("0.25"), timeout=120)
    turn = run_turn(tester.start("go").pk)
    hours_ago = timezone.now() - timedelta(hours=2)
    Turn.objects.filter(pk=turn.pk).update(parked_at=hours_ago, started_at=hours_ago, stretch_seconds=119)
    turn.refresh_from_db()
    assert run_turn(turn.raise_budget(max_cost=1).pk).status == "completed"


def test_a_turn_parked_on_time_starts_a_fresh_stretch_whatever_was_raised() -> None:
    tester, _ = agent(asks("a", delay=0.2), reply("done"), timeout=0.1, max_cost=1)
    turn = run_turn(tester.start("go").pk)
    assert turn.park_reason == "timeout"
    assert turn.stretch_seconds > 0.1
    turn.raise_budget(max_cost=2)
    assert turn.stretch_seconds == 0
    assert run_turn(turn.pk).status == "completed"
    assert Turn.objects.get().active_seconds > 0.2
