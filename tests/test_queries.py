"""Questions an operator asks of the rows, as one writes them, in several time zones and with ``USE_TZ`` off."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from agentturns import Agent, Limits, Step, ToolCall, Turn, get_agent, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(
    autouse=True,
    params=[
        (True, "UTC"),
        (True, "America/New_York"),
        (True, "Pacific/Auckland"),
        (False, "America/New_York"),
        (False, "Pacific/Auckland"),
    ],
    ids=lambda zone: f"USE_TZ={zone[0]} {zone[1]}",
)
def zone(request: pytest.FixtureRequest, settings: Any) -> None:
    """The project's time zone."""
    settings.USE_TZ, settings.TIME_ZONE = request.param


@tool(effect="idempotent")
def look(what: str) -> str:
    """Look."""
    return what


@tool(approval="always")
def pay(order: str) -> str:
    """Pay."""
    return "paid"


@pytest.fixture(autouse=True)
def agents() -> None:
    for name in ("sales", "support"):
        limits = Limits(max_cost="0.25")
        Agent(name=name, model="scripted:none", instructions="…", tools=[look, pay], limits=limits)


def run(agent: str, *script: Any, tenant: str = "acme") -> Turn:
    with get_agent(agent).override(model=ScriptedModel(list(script))):
        return run_turn(get_agent(agent).start("go", tenant=tenant).pk)


def parked_on_cost(at: datetime, cost: str, *, tenant: str = "acme") -> Turn:
    """A turn that parked at this moment having spent this much."""
    turn = run("support", reply(tool_calls=[("look", {"what": "a"})], cost=cost), tenant=tenant)
    assert turn.park_reason == "max_cost"
    Turn.objects.filter(pk=turn.pk).update(parked_at=at)
    return turn


def local(day: date, hour: int, minute: int = 0) -> datetime:
    """A moment by the project's own clock."""
    moment = datetime.combine(day, time(hour, minute))
    return timezone.make_aware(moment) if timezone.is_aware(timezone.now()) else moment


def today() -> date:
    now = timezone.now()
    return timezone.localdate(now) if timezone.is_aware(now) else now.date()


def test_the_turns_of_a_tenant_that_parked_for_cost_this_week_and_what_they_spent() -> None:
    monday = today() - timedelta(days=today().weekday())
    parked_on_cost(local(monday - timedelta(days=1), 23, 30), "0.90")
    first = parked_on_cost(local(monday, 0, 30), "0.30")
    second = parked_on_cost(local(monday, 23, 30), "0.40")
    parked_on_cost(local(monday, 12), "0.50", tenant="bolt")
    run("support", reply(tool_calls=[("pay", {"order": "a"})], cost="0.10"))

    this_week = Turn.objects.for_tenant("acme").parked("max_cost").filter(parked_at__gte=local(monday, 0))
    assert [(turn.pk, turn.spent("max_cost")) for turn in this_week.order_by("parked_at")] == [
        (first.pk, Decimal("0.30")),
        (second.pk, Decimal("0.40")),
    ]
    assert this_week.spend()["cost"] == Decimal("0.70")
    assert [turn.pk for turn in this_week.needs_attention()] == [first.pk, second.pk]


def test_cost_per_agent_and_day() -> None:
    made_at = {
        "support": [(local(date(2026, 3, 1), 0, 15), "0.10"), (local(date(2026, 3, 1), 23, 45), "0.20")],
        "sales": [(local(date(2026, 3, 1), 12), "0.05"), (local(date(2026, 3, 2), 0, 15), "0.07")],
    }
    for agent, steps in made_at.items():
        for moment, cost in steps:
            turn = run(agent, reply("done", cost=cost))
            Step.objects.filter(turn=turn).update(started_at=moment)

    turns = Turn.objects.for_tenant("acme")
    assert {
        (of["agent"], row["day"]): row["cost"]
        for of in turns.spend_by("agent")
        for row in turns.filter(agent=of["agent"]).spend_by("day")
    } == {
        ("sales", date(2026, 3, 1)): Decimal("0.05"),
        ("sales", date(2026, 3, 2)): Decimal("0.07"),
        ("support", date(2026, 3, 1)): Decimal("0.30"),
    }

    in_one_query = (
        Step.objects.filter(turn__tenant="acme")
        .values("turn__agent", day=TruncDate("started_at"))
        .annotate(spent=Sum("cost"))
        .order_by("turn__agent", "day")
    )
    assert list(in_one_query.values_list("turn__agent", "day", "spent")) == [
        ("sales", date(2026, 3, 1), Decimal("0.05")),
        ("sales", date(2026, 3, 2), Decimal("0.07")),
        ("support", date(2026, 3, 1), Decimal("0.30")),
    ]


def test_decisions_that_wait_oldest_first() -> None:
    asks = [reply(tool_calls=[("pay", {"order": order}), ("pay", {"order": order + "2"})]) for order in ("A", "B")]
    old, new = (run("support", ask) for ask in asks)
    run("support", reply("nothing to decide"))
    old.tool_calls.get(position=0).approve()

    waiting = ToolCall.objects.awaiting_decision()
    assert [(call.turn_id, call.arguments["order"]) for call in waiting] == [
        (old.pk, "A2"),
        (new.pk, "B"),
        (new.pk, "B2"),
    ]
    assert [call.arguments["order"] for call in waiting.filter(turn__tenant="acme", expires_at__gt=timezone.now())] == [
        "A2",
        "B",
        "B2",
    ]
    soon = timezone.now() + timedelta(days=6, hours=23)
    assert not waiting.filter(expires_at__lt=soon).exists()
    assert list(Turn.objects.parked("approval").order_by("pk")) == [old, new]
