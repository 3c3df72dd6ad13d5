"""The operator's prices in a running turn: they go before the list, cost one query a claim, and are soon seen."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentturns import Agent, Turn, tool
from agentturns.engine import prices
from agentturns.engine.runner import run_turn
from agentturns.models.price import Price
from agentturns.providers.base import ModelRequest, Usage
from agentturns.providers.scripted import ScriptedModel, reply
from tests.metered import BACKEND, Metered

pytestmark = pytest.mark.django_db(transaction=True)

MILLION = 1_000_000


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    return "noted"


@pytest.fixture(autouse=True)
def aliases(settings: Any) -> None:
    providers = {"openai": {"BACKEND": BACKEND, "OPTIONS": {"pricing": "openai", "served": "gpt-5-mini-2025-08-07"}}}
    settings.AGENTTURNS = {**settings.AGENTTURNS, "PROVIDERS": providers}


def start(model: Any = "openai:gpt-5-mini") -> Turn:
    return Agent(name=f"agent {Turn.objects.count()}", model=model, instructions="…", tools=[note]).start("go")


def test_a_price_of_the_operators_goes_before_the_list_also_under_the_name_asked_for() -> None:
    price = Price.objects.create(provider="openai", model="gpt-5-mini", input=3, output=7)
    Metered.say([Usage(MILLION, 0, 0, MILLION)])
    step = run_turn(start().pk).steps.get()
    assert (step.cost, step.price_source) == (10, f"price {price.pk}: openai/gpt-5-mini")
    assert (step.model, step.requested_model) == ("gpt-5-mini-2025-08-07", "gpt-5-mini")
    assert step.estimate is not None
    assert step.estimate * MILLION == (step.estimated_input_tokens or 0) * 3 + 4_096 * 7


def test_a_step_keeps_the_usage_that_a_later_price_needs() -> None:
    Metered.say([Usage(9, 1, 5, 2, cache_write_1h_tokens=3)])
    step = run_turn(start().pk).steps.get()
    assert (step.input_tokens, step.cached_input_tokens, step.cache_write_tokens) == (9, 1, 5)
    assert (step.cache_write_1h_tokens, step.output_tokens) == (3, 2)


def test_prices_cost_one_query_however_many_steps() -> None:
    Metered.say([Usage(1, 0, 0, 1)] * 8)
    turn = start()
    with CaptureQueriesContext(connection) as asked:
        assert run_turn(turn.pk).step_count == 8
    assert sum("agentturns_price" in query["sql"] for query in asked) == 1


def test_a_price_entered_while_a_turn_runs_counts_for_its_later_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "READ_AGAIN_SECONDS", 0)

    def speak(request: ModelRequest) -> Usage:
        if len(Metered.requests) == 1:
            Price.objects.create(provider="openai", model="gpt*", input=3, output=7)
        if len(Metered.requests) == 2:
            Turn.objects.get().cancel()
        return Usage(MILLION, 0, 0, 0)

    Metered.say(speak)
    turn = run_turn(start().pk)
    assert list(turn.steps.order_by("index").values_list("cost", flat=True)) == [Decimal("0.25"), 3]


def test_a_cost_that_the_provider_states_itself_goes_before_every_price() -> None:
    Price.objects.create(provider="scripted", model="*", input=3, output=7)
    scripted = ScriptedModel(
        [
            reply(tool_calls=[("note", {"text": "a"})], input_tokens=MILLION, cost="0.5"),
            reply("done", input_tokens=MILLION, cost=None),
        ]
    )
    steps = run_turn(start(scripted).pk).steps.order_by("index")
    assert [step.cost for step in steps] == [Decimal("0.5"), 3]
    assert [step.price_source.split()[0] for step in steps] == ["scripted", "price"]
