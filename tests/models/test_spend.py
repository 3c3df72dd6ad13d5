"""Querysets: turns by where they stand, and what they cost, exactly and in the current time zone."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from agentturns import Agent, Limits, Step, ToolCall, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.base import Fault, ProviderError
from agentturns.providers.scripted import ScriptedModel, reply
from tests.lost_workers import Died, run_until_death

pytestmark = pytest.mark.django_db(transaction=True)


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    return text


@tool(approval="always")
def pay(order: str) -> str:
    """Pay."""
    return "paid"


def asks(**options: Any) -> Any:
    return reply(tool_calls=[("note", {"text": "a"})], **options)


def run(name: str, *script: Any, tenant: str = "", model: str | None = None, **limits: Any) -> Turn:
    """One turn of an agent of this name, run until it rests."""
    agent = Agent(
        name=name,
        model=ScriptedModel(list(script), name=model),
        instructions="…",
        tools=[note, pay],
        limits=Limits(**limits),
    )
    return run_turn(agent.start("go", tenant=tenant).pk)


def figures(**changed: Any) -> dict[str, Any]:
    return {
        "turns": 0,
        "steps": 0,
        "input_tokens": 0,
        "cached_input_tokens": 0,
        "output_tokens": 0,
        "cost": Decimal(0),
        "presumed_cost": Decimal(0),
        "unpriced_steps": 0,
        **changed,
    }


def test_turns_are_found_by_where_they_stand() -> None:
    done = run("done", reply("done"))
    cut = run("cut", reply("half", stop_reason="max_tokens"))
    canceled = run("canceled", reply(tool_calls=[("pay", {"order": "a"})])).cancel()
    costly = run("costly", asks(cost=2), max_cost=1)
    unpriced = run("unpriced", asks(cost=None), max_cost=1)
    asking = run("asking", reply(tool_calls=[("pay", {"order": "a"})]))
    broken = run("broken", ProviderError("No.", fault=Fault.PERMANENT))
    backing_off = run("backing off", ProviderError("Busy.", fault=Fault.TRANSIENT))
    agent = Agent(name="waiting", model="scripted:none", instructions="…")
    waiting = agent.start("go", tenant="acme")
    behind = waiting.session.send("more")

    def speak(request: Any) -> Any:
        raise Died

    abandoned = run_until_death(Agent(name="abandoned", model=ScriptedModel(speak), instructions="…").start("go"))

    turns = Turn.objects.order_by("pk")
    assert list(turns.queued()) == [backing_off, waiting, behind]
    assert list(turns.running()) == [abandoned]
    assert list(turns.parked()) == [costly, unpriced, asking, broken]
    assert list(turns.parked("max_cost")) == [costly]
    assert list(turns.parked(Turn.ParkReason.APPROVAL)) == [asking]
    assert list(turns.budget_parked()) == [costly, unpriced]
    assert [turn.budget_parked for turn in (costly, unpriced, asking, done)] == [True, True, False, False]
    assert list(turns.finished()) == [done, cut, canceled]
    assert list(turns.runnable()) == [waiting, abandoned]
    assert list(turns.for_tenant("acme")) == [waiting, behind]
    assert list(Turn.objects.needs_attention()) == [costly, unpriced, asking, broken]
    assert list(ToolCall.objects.awaiting_decision()) == [asking.tool_calls.get()]


def test_the_longest_parked_need_attention_first() -> None:
    first = run("first", asks(cost=2), asks(cost=2), max_cost=1)
    second = run("second", asks(cost=2), max_cost=1)
    assert list(Turn.objects.needs_attention()) == [first, second]
    run_turn(first.raise_budget(max_cost=3).pk)
    assert list(Turn.objects.needs_attention()) == [second, first]


def test_spend_is_the_sum_of_the_turns_and_nothing_is_zero_not_none() -> None:
    assert Turn.objects.all().spend() == figures()
    assert Turn.objects.all().spend_by("agent") == []
    run("a", asks(cost="0.1", input_tokens=100, cached_input_tokens=40, output_tokens=7), reply("x", cost="0.2"))
    run("b", asks(cost=None, input_tokens=None, output_tokens=None), reply("x", cost="0.000000001"))
    assert Turn.objects.all().spend() == figures(
        turns=2,
        steps=4,
        input_tokens=100,
        cached_input_tokens=40,
        output_tokens=7,
        cost=Decimal("0.300000001"),
        unpriced_steps=1,
    )
    assert Turn.objects.filter(agent="b").spend()["cost"] == Decimal("0.000000001")


def test_spend_stays_exact_where_floats_would_not() -> None:
    for number in range(10):
        run(f"agent {number}", reply("x", cost="0.100000001"))
    assert Turn.objects.all().spend()["cost"] == Decimal("1.00000001")
    assert [group["cost"] for group in Turn.objects.all().spend_by("tenant")] == [Decimal("1.00000001")]


def test_spend_by_agent_tenant_and_model_adds_up_to_spend() -> None:
    run("a", asks(cost="0.1"), reply("x", cost="0.2"), tenant="acme", model="small")
    run("b", reply("x", cost="0.4"), tenant="acme", model="large")
    run("c", reply("x", cost=None), tenant="bolt", model="small-2")
    turns = Turn.objects.all()
    assert turns.spend_by("agent") == [
        {"agent": "a", **figures(turns=1, steps=2, cost=Decimal("0.3"))},
        {"agent": "b", **figures(turns=1, steps=1, cost=Decimal("0.4"))},
        {"agent": "c", **figures(turns=1, steps=1, unpriced_steps=1)},
    ]
    assert turns.spend_by("tenant") == [
        {"tenant": "acme", **figures(turns=2, steps=3, cost=Decimal("0.7"))},
        {"tenant": "bolt", **figures(turns=1, steps=1, unpriced_steps=1)},
    ]
    assert turns.for_tenant("acme").spend_by("model") == [
        {"model": "large", **figures(turns=1, steps=1, cost=Decimal("0.4"))},
        {"model": "small", **figures(turns=1, steps=2, cost=Decimal("0.3"))},
    ]
    for group in ("agent", "tenant", "model", "day"):
        rows = turns.spend_by(group)
        assert sum(row["cost"] for row in rows) == turns.spend()["cost"]
        assert sum(row["steps"] for row in rows) == turns.spend()["steps"]


def test_presumed_cost_is_kept_apart() -> None:
    def speak(request: Any) -> Any:
        raise Died

    turn = run_until_death(Agent(name="a", model=ScriptedModel(speak), instructions="…").start("go"))
    turn.steps.update(estimate=Decimal("0.07"))
    with pytest.raises(Died):
        run_turn(turn.pk)
    assert Turn.objects.all().spend() == figures(turns=1, steps=1, presumed_cost=Decimal("0.07"))
    assert Turn.objects.all().spend_by("agent")[0]["presumed_cost"] == Decimal("0.07")


@pytest.mark.parametrize(
    ("zone", "costs"),
    [
        ("UTC", {date(2026, 3, 1): Decimal("0.3"), date(2026, 3, 2): Decimal("0.4")}),
        ("America/New_York", {date(2026, 2, 28): Decimal("0.1"), date(2026, 3, 1): Decimal("0.6")}),
        ("Asia/Tokyo", {date(2026, 3, 1): Decimal("0.1"), date(2026, 3, 2): Decimal("0.6")}),
    ],
)
def test_a_day_is_one_of_the_current_time_zone(zone: str, costs: dict[date, Decimal]) -> None:
    turn = run("a", asks(cost="0.1"), asks(cost="0.2"), reply("x", cost="0.4"))
    for step, (day, hour) in zip(turn.steps.order_by("index"), [(1, 2), (1, 23), (2, 2)], strict=True):
        Step.objects.filter(pk=step.pk).update(started_at=datetime(2026, 3, day, hour, tzinfo=UTC))
    with timezone.override(zone):
        rows = Turn.objects.all().spend_by("day")
    assert {row["day"]: row["cost"] for row in rows} == costs
    assert [row["turns"] for row in rows] == [1, 1]


def test_an_unknown_group_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"Cannot group spend by 'week'; it is one of agent, tenant, model, day\."):
        Turn.objects.all().spend_by("week")


def test_a_turn_found_through_its_calls_is_counted_once() -> None:
    turn = run("a", reply(tool_calls=[("note", {"text": text}) for text in "abc"], cost="0.1"), reply("x", cost="0.1"))
    found = Turn.objects.filter(tool_calls__name="note")
    assert (found.count(), found.spend()) == (3, figures(turns=1, steps=2, cost=Decimal("0.2")))
    assert found.spend_by("agent") == [{"agent": "a", **figures(turns=1, steps=2, cost=Decimal("0.2"))}]
    assert turn.cost == Decimal("0.2")


def test_the_dearest_turns_are_summed_alone() -> None:
    for name, cost in (("a", "0.1"), ("b", "0.4"), ("c", "0.2")):
        run(name, reply("x", cost=cost))
    dearest = Turn.objects.order_by("-cost")[:2]
    assert dearest.spend() == figures(turns=2, steps=2, cost=Decimal("0.6"))
    assert [row["agent"] for row in dearest.spend_by("agent")] == ["b", "c"]


def test_an_ordered_queryset_is_grouped_as_well() -> None:
    run("a", reply("x", cost="0.1"))
    run("b", reply("x", cost="0.2"))
    ordered = Turn.objects.order_by("-pk")
    assert ordered.spend()["cost"] == Decimal("0.3")
    assert [row["agent"] for row in ordered.spend_by("agent")] == ["a", "b"]


def test_spend_can_be_grouped_by_agent_and_day_at_once() -> None:
    agent = Agent(
        name="tester", model=ScriptedModel([reply("a", cost="0.10"), reply("b", cost="0.20")]), instructions="…"
    )
    for _ in range(2):
        run_turn(agent.start("go").pk)
    (row,) = Turn.objects.all().spend_by("agent", "day")
    assert (row["agent"], row["day"], row["turns"], row["cost"]) == (
        "tester",
        timezone.localdate(),
        2,
        Decimal("0.30"),
    )


def test_a_reason_that_no_turn_parks_for_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="No turn parks for 'max_costs'; the reasons are max_input_tokens"):
        Turn.objects.parked("max_costs")
