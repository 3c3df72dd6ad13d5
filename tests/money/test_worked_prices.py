"""Thirty prices worked by hand from the vendors' rates, and the ways they add up: steps, turns, reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal as D
from typing import Any

import pytest

from agentturns import Agent, Step, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.models.price import Price
from agentturns.money.price_book import PriceBook, PriceRule, Rates
from agentturns.money.pricing import price
from agentturns.providers.base import Usage
from tests.metered import BACKEND, Metered

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
M = 1_000_000


@dataclass(frozen=True)
class Worked:
    """A call and what it costs: ``by_hand`` is tokens × USD per million tokens, written out, in millionths of a USD."""

    model: str
    usage: Usage
    by_hand: D
    vendor: str = "openai"
    at: datetime = NOW
    context: dict[str, str] = field(default_factory=dict)


def used(whole: int, out: int, *, read: int = 0, written: int = 0, hour: int = 0, thought: int = 0) -> Usage:
    return Usage(whole, read, written, out, thought, hour)


def day(month: int, day: int) -> datetime:
    return datetime(2026, month, day, 12, tzinfo=UTC)


FLEX, PRIORITY, BATCH = {"service_tier": "flex"}, {"service_tier": "priority"}, {"processing": "batch"}

WORKED = {
    # Input and output alone. gpt-5-mini: $0.25 in, $0.025 cached, $2 out.
    "input and output": Worked("gpt-5-mini", used(1_234, 567), 1_234 * D("0.25") + 567 * D(2)),
    "input alone": Worked("gpt-5-mini", used(1, 0), 1 * D("0.25")),
    "output alone": Worked("gpt-5-mini", used(0, 1), 1 * D(2)),
    "reasoning is output": Worked("gpt-5-mini", used(900, 4_000, thought=3_700), 900 * D("0.25") + 4_000 * D(2)),
    "a dated name": Worked("gpt-5-mini-2025-08-07", used(777, 33), 777 * D("0.25") + 33 * D(2)),
    "gpt-4o": Worked("gpt-4o", used(4_321, 123), 4_321 * D("2.5") + 123 * D(10)),
    "a dear model": Worked("gpt-5-pro", used(2_000, 3_000), 2_000 * D(15) + 3_000 * D(120)),
    # Read from the cache.
    "half from the cache": Worked(
        "gpt-5-mini", used(10_000, 100, read=5_000), 5_000 * D("0.25") + 5_000 * D("0.025") + 100 * D(2)
    ),
    "all from the cache": Worked("gpt-5-mini", used(7, 0, read=7), 7 * D("0.025")),
    "a cached rate of a half": Worked(
        "gpt-4o", used(3_000, 10, read=1_024), 1_976 * D("2.5") + 1_024 * D("1.25") + 10 * D(10)
    ),
    "no cached rate": Worked("gpt-5-pro", used(1_000, 10, read=400), 1_000 * D(15) + 10 * D(120)),
    # Written to the cache. claude-sonnet-5: $2 in, $0.20 read, $2.50 and $4 written, $10 out.
    "written for five minutes": Worked(
        "claude-sonnet-5", used(9_000, 250, written=8_000), 1_000 * D(2) + 8_000 * D("2.5") + 250 * D(10), "anthropic"
    ),
    "written for an hour": Worked(
        "claude-sonnet-5",
        used(9_000, 250, written=8_000, hour=8_000),
        1_000 * D(2) + 8_000 * D(4) + 250 * D(10),
        "anthropic",
    ),
    "read and both kinds of writes": Worked(
        "claude-sonnet-5",
        used(20_000, 999, read=12_000, written=6_000, hour=1_500),
        2_000 * D(2) + 12_000 * D("0.2") + 4_500 * D("2.5") + 1_500 * D(4) + 999 * D(10),
        "anthropic",
    ),
    "written by a dearer model": Worked(
        "claude-opus-5", used(5_001, 77, written=5_000), 1 * D(5) + 5_000 * D("6.25") + 77 * D(25), "anthropic"
    ),
    "written by a cheaper model": Worked(
        "claude-haiku-4-5",
        used(5_001, 77, read=1, written=5_000, hour=4_999),
        1 * D("0.1") + 1 * D("1.25") + 4_999 * D(2) + 77 * D(5),
        "anthropic",
    ),
    "written at OpenAI": Worked("gpt-5.6", used(4_000, 50, written=3_000), 1_000 * D(4) + 3_000 * D(5) + 50 * D(20)),
    # Tiers: above 200,000 or 272,000 tokens of input everything is dearer.
    "the last token of the lower tier": Worked(
        "claude-sonnet-4-5", used(200_000, 100), 200_000 * D(3) + 100 * D(15), "anthropic"
    ),
    "the first token of the higher tier": Worked(
        "claude-sonnet-4-5", used(200_001, 100), 200_001 * D(6) + 100 * D("22.5"), "anthropic"
    ),
    "the higher tier with its cache": Worked(
        "claude-sonnet-4-5",
        used(300_000, 1_000, read=250_000, written=40_000, hour=10_000),
        10_000 * D(6) + 250_000 * D("0.6") + 30_000 * D("7.5") + 10_000 * D(12) + 1_000 * D("22.5"),
        "anthropic",
    ),
    "the higher tier at OpenAI": Worked("gpt-5.6-terra", used(272_001, 10), 272_001 * D(4) + 10 * D(18)),
    "the higher tier at Google": Worked("gemini-2.5-pro", used(200_001, 10), 200_001 * D("2.5") + 10 * D(15), "google"),
    # Service tiers and batches.
    "flex": Worked("gpt-5-mini", used(1_001, 501), 1_001 * D("0.125") + 501 * D(1), context=FLEX),
    "flex from the cache": Worked(
        "gpt-5-mini", used(1_000, 0, read=999), 1 * D("0.125") + 999 * D("0.0125"), context=FLEX
    ),
    "priority": Worked("gpt-5-mini", used(1_001, 501), 1_001 * D("0.45") + 501 * D("3.6"), context=PRIORITY),
    "batch": Worked("claude-sonnet-4-5", used(1_001, 501), 1_001 * D("1.5") + 501 * D("7.5"), "anthropic", NOW, BATCH),
    # Days on which a price changed.
    "the day before a cut": Worked("gpt-5.6", used(3_000, 70), 3_000 * D(5) + 70 * D(30), at=day(8, 20)),
    "the day of the cut": Worked("gpt-5.6", used(3_000, 70), 3_000 * D(4) + 70 * D(20), at=day(8, 21)),
    "a tier that was given up": Worked(
        "claude-opus-4-6", used(200_001, 5), 200_001 * D(10) + 5 * D("37.5"), "anthropic", day(3, 12)
    ),
    "the same without the tier": Worked(
        "claude-opus-4-6", used(200_001, 5), 200_001 * D(5) + 5 * D(25), "anthropic", day(3, 13)
    ),
}

OWN = PriceBook.of(
    [
        PriceRule(1, "openai", "gpt-*", Rates(D("0.3"), D("2.2"))),
        PriceRule(2, "openai", "gpt-*", Rates(D("0.2"), D("1.1"), cached_input=D("0.07")), day(9, 1)),
        PriceRule(3, "openai", "gpt-5-pro", Rates(D(9), D(90), cached_input=D(1), cache_write=D(11))),
        PriceRule(4, "claude", "*", Rates(D(3), D(15), D("0.3"), D("3.75"), D("6.123456789"))),
    ]
)
BY_PRICE_ROWS = {
    "before its day": ("openai", Worked("gpt-5-mini", used(17, 3), 17 * D("0.3") + 3 * D("2.2"), at=day(8, 31))),
    "from its day on": ("openai", Worked("gpt-5-mini", used(17, 3), 17 * D("0.2") + 3 * D("1.1"), at=day(9, 1))),
    "its cache": ("openai", Worked("gpt-4o", used(17, 3, read=16), 1 * D("0.2") + 16 * D("0.07") + 3 * D("1.1"))),
    "the more special": (
        "openai",
        Worked("gpt-5-pro", used(100, 9, read=10, written=20), 70 * D(9) + 10 * D(1) + 20 * D(11) + 9 * D(90)),
    ),
    "both kinds of writes": (
        "claude",
        Worked(
            "claude-sonnet-5",
            used(1_000, 100, read=500, written=400, hour=150),
            100 * D(3) + 500 * D("0.3") + 250 * D("3.75") + 150 * D("6.123456789") + 100 * D(15),
        ),
    ),
}


def to_nano_usd(millionths: D) -> D:
    """Millionths of a dollar as dollars, rounded half up to the nano-dollar, without the code that is tested."""
    nano, rest = divmod(millionths * 1_000, 1)
    return (nano + (rest >= D("0.5"))) / D(1_000_000_000)


def test_there_are_thirty_and_more() -> None:
    assert len(WORKED) >= 30


@pytest.mark.parametrize("worked", WORKED.values(), ids=WORKED.keys())
def test_a_price_from_the_list_is_the_one_worked_by_hand(worked: Worked) -> None:
    found = price(worked.usage, model=worked.model, pricing_id=worked.vendor, at=worked.at, options=worked.context)
    assert found is not None
    assert found.cost == to_nano_usd(worked.by_hand)


@pytest.mark.parametrize(("provider", "worked"), BY_PRICE_ROWS.values(), ids=BY_PRICE_ROWS.keys())
def test_a_price_of_the_operators_is_the_one_worked_by_hand(provider: str, worked: Worked) -> None:
    found = price(worked.usage, model=worked.model, pricing_id=worked.vendor, at=worked.at, book=OWN, provider=provider)
    assert found is not None
    assert found.cost == to_nano_usd(worked.by_hand)


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    return "noted"


ALIASES: dict[str, dict[str, Any]] = {
    "openai": {"pricing": "openai"},
    "anthropic": {"pricing": "anthropic"},
    "flex": {"pricing": "openai", "context": {"service_tier": "flex"}},
    "local": {},
}


@pytest.fixture
def aliases(settings: Any) -> None:
    """Vendors of all kinds of prices, each under its own alias."""
    providers = {alias: {"BACKEND": BACKEND, "OPTIONS": options} for alias, options in ALIASES.items()}
    settings.AGENTTURNS = {**settings.AGENTTURNS, "PROVIDERS": providers}


def run(model: str, *usages: Usage, tenant: str = "") -> Turn:
    """One turn with these replies, by an agent named after the model."""
    Metered.say(usages)
    agent = Agent(name=model, model=model, instructions="…", tools=[note])
    return run_turn(agent.start("go", tenant=tenant).pk)


@pytest.mark.django_db(transaction=True)
def test_steps_turns_and_reports_add_up_to_what_was_worked_by_hand(aliases: None) -> None:
    Price.objects.create(provider="local", model="llama*", input="0.1", cached_input="0.01", output="0.4")
    turns = {
        run("openai:gpt-5-mini", used(1_001, 3, read=1_000), used(1_013, 7), tenant="acme").pk: (
            1 * D("0.25") + 1_000 * D("0.025") + 3 * D(2) + 1_013 * D("0.25") + 7 * D(2)
        ),
        run("anthropic:claude-sonnet-5", used(900, 11, written=800, hour=300), used(950, 5, read=800)).pk: (
            100 * D(2) + 500 * D("2.5") + 300 * D(4) + 11 * D(10) + 150 * D(2) + 800 * D("0.2") + 5 * D(10)
        ),
        run("flex:gpt-5-mini", used(333, 33), tenant="acme").pk: 333 * D("0.125") + 33 * D(1),
        run("local:llama-4", used(77, 7, read=70), used(99, 9)).pk: (
            7 * D("0.1") + 70 * D("0.01") + 7 * D("0.4") + 99 * D("0.1") + 9 * D("0.4")
        ),
        run("local:unheard-of", used(50, 5)).pk: D(0),
    }
    for turn in Turn.objects.all():
        assert turn.status == "completed"
        assert turn.cost == turns[turn.pk] / M
        assert turn.cost == sum((step.cost or D(0)) for step in turn.steps.all())
    report = Turn.objects.all().spend()
    assert report["cost"] == sum(turns.values()) / M
    assert report["unpriced_steps"] == 1
    for group in ("agent", "tenant", "model", "day"):
        assert sum(row["cost"] for row in Turn.objects.all().spend_by(group)) == report["cost"]
        assert sum(row["unpriced_steps"] for row in Turn.objects.all().spend_by(group)) == 1
    of_acme = Turn.objects.for_tenant("acme")
    assert of_acme.spend()["cost"] == sum(turns[turn.pk] for turn in of_acme) / M


@pytest.mark.django_db(transaction=True)
def test_a_step_keeps_what_priced_it(aliases: None) -> None:
    own = Price.objects.create(provider="local", model="llama*", input=1, output=1)
    sources = {
        model: run(model, used(1, 1)).steps.get().price_source
        for model in ("openai:gpt-5-mini", "flex:gpt-5-mini", "local:llama-4", "local:unheard-of")
    }
    assert sources["openai:gpt-5-mini"].endswith(" openai/gpt-5-mini")
    assert sources["flex:gpt-5-mini"].endswith(" openai/gpt-5-mini flex")
    assert sources["local:llama-4"] == f"price {own.pk}: local/llama*"
    assert sources["local:unheard-of"] == ""
    assert Step.objects.get(price_source="").cost is None
