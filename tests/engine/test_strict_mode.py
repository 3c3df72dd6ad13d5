"""``reserve="worst_case"``: a call that could pass the cap is made smaller, or not made at all."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agentturns import Agent, Limits, Step, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.models.price import Price
from agentturns.money.estimate import DEFAULT_REPLY_TOKENS, LEAST_USEFUL_REPLY
from agentturns.providers.base import Fault, ModelRequest, ProviderError, Usage
from tests.metered import BACKEND, Metered

pytestmark = pytest.mark.django_db(transaction=True)

MILLION = 1_000_000
# USD per million tokens; the dearest input is what is written to the cache for an hour.
DEAREST, OUTPUT = 4, 10
RATES = {"input": 2, "cached_input": "0.2", "cache_write": "2.5", "cache_write_1h": DEAREST, "output": OUTPUT}


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    return "noted"


@pytest.fixture(autouse=True)
def aliases(settings: Any) -> None:
    vendors = {
        "local": {},
        "openai": {"pricing": "openai"},
        "priority": {"pricing": "openai", "sent": {"extra": {"service_tier": "priority"}}},
    }
    providers = {alias: {"BACKEND": BACKEND, "OPTIONS": options} for alias, options in vendors.items()}
    settings.AGENTTURNS = {**settings.AGENTTURNS, "PROVIDERS": providers}


@pytest.fixture
def price(transactional_db: None) -> Price:
    """What the models of ``local`` cost."""
    return Price.objects.create(provider="local", model="*", **RATES)


def start(
    max_cost: Decimal | str, *, model: str = "local:llama", reply_tokens: int | None = None, **limits: Any
) -> Turn:
    limits = {"max_cost": Decimal(max_cost), "reserve": "worst_case", **limits}
    agent = Agent(
        name=f"agent {Turn.objects.count()}",
        model=model,
        instructions="Be brief. " * 200,
        tools=[note],
        limits=Limits(**limits),
        max_reply_tokens=reply_tokens,
    )
    return agent.start("go")


def at_worst(reply_tokens: int) -> Decimal:
    """What the first call of such an agent could cost with a reply of this length."""
    return Decimal(first_input() * DEAREST + reply_tokens * OUTPUT) / MILLION


def first_input() -> int:
    """The bound on the input of the first call, from a turn that was run for it."""
    known = Step.objects.filter(index=1).first()
    if known is None:
        Metered.say([Usage(1, 0, 0, 1)])
        run_turn(start(1_000).pk)
        known = Step.objects.get()
    assert known.estimated_input_tokens
    return known.estimated_input_tokens


def test_a_call_that_fits_keeps_its_limit(price: Price) -> None:
    turn = start(at_worst(1_000), reply_tokens=1_000)
    Metered.say([Usage(1, 0, 0, 1)])
    turn = run_turn(turn.pk)
    assert turn.status == "completed"
    assert (Metered.requests[0].max_output_tokens, turn.steps.get().output_limit) == (1_000, 1_000)


def test_a_call_that_fits_with_a_shorter_reply_is_sent_that_limit(price: Price) -> None:
    turn = start(at_worst(600), reply_tokens=1_000)
    Metered.say([Usage(1, 0, 0, 1)])
    turn = run_turn(turn.pk)
    step = turn.steps.get()
    assert turn.status == "completed"
    assert (Metered.requests[0].max_output_tokens, step.output_limit) == (600, 600)
    assert step.estimate == Decimal(first_input() * 2 + 600 * OUTPUT) / MILLION


def test_the_limit_is_the_largest_that_fits(price: Price) -> None:
    nearly = at_worst(601) - Decimal("0.000000001")
    turn = start(nearly, reply_tokens=1_000)
    Metered.say([Usage(1, 0, 0, 1)])
    assert run_turn(turn.pk).steps.get().output_limit == 600


def test_a_reply_cut_by_the_lower_limit_waits_for_a_raise_and_is_then_asked_for_again(price: Price) -> None:
    turn = start(at_worst(600), reply_tokens=1_000)
    Metered.say([Usage(1, 0, 0, 600), Usage(1, 0, 0, 700)])
    turn = run_turn(turn.pk)
    assert (turn.status, turn.park_reason) == ("parked", "max_cost")
    assert "(the reply was cut at 600 tokens, the most that max_cost left room for)" in turn.waiting_for
    turn = run_turn(turn.raise_budget(max_cost=1).pk)
    assert (turn.status, turn.answer) == ("completed", "done")
    assert [request.max_output_tokens for request in Metered.requests] == [600, 1_000]


def test_a_reply_cut_by_the_agents_own_limit_fails_as_ever(price: Price) -> None:
    turn = start(1, reply_tokens=1_000)
    Metered.say([Usage(1, 0, 0, 1_000)])
    turn = run_turn(turn.pk)
    assert (turn.status, turn.error_code) == ("failed", "incomplete_reply")


def test_where_too_little_would_be_left_for_a_reply_the_call_is_not_made(price: Price) -> None:
    turn = start(at_worst(LEAST_USEFUL_REPLY - 1), reply_tokens=1_000)
    Metered.say([Usage(1, 0, 0, 1)])
    turn = run_turn(turn.pk)
    assert (turn.status, turn.park_reason, turn.step_count, Metered.requests) == ("parked", "max_cost", 0, [])
    assert turn.waiting_for.startswith("Spent $0.00 of max_cost ")
    assert "(the next call could cost up to $" in turn.waiting_for

    turn = run_turn(turn.raise_budget(max_cost=at_worst(LEAST_USEFUL_REPLY)).pk)
    assert (turn.status, turn.steps.get().output_limit) == ("completed", LEAST_USEFUL_REPLY)


def test_a_limit_that_is_short_by_itself_is_not_made_shorter(price: Price) -> None:
    turn = start(at_worst(99), reply_tokens=100)
    Metered.say([Usage(1, 0, 0, 1)])
    assert run_turn(turn.pk).park_reason == "max_cost"
    assert Metered.requests == []


def test_an_agent_without_a_limit_of_its_own_gets_one(price: Price) -> None:
    Metered.say([Usage(1, 0, 0, 1)])
    assert run_turn(start(100).pk).steps.get().output_limit == DEFAULT_REPLY_TOKENS
    Metered.say([Usage(1, 0, 0, 1)])
    assert run_turn(start(100, reserve=None).pk).steps.get().output_limit is None


def test_without_a_cap_on_the_cost_nothing_is_held_back(price: Price) -> None:
    turn = start(1, reply_tokens=1_000)
    Turn.objects.filter(pk=turn.pk).update(limits={"max_cost": None})
    Metered.say([Usage(1, 0, 0, 1)])
    assert run_turn(turn.pk).steps.get().output_limit == 1_000


def test_each_call_is_measured_against_what_the_ones_before_left(price: Price) -> None:
    Metered.say([Usage(1_000, 0, 0, 500), Usage(1_000, 0, 0, 1)])
    turn = run_turn(start("0.03", reply_tokens=2_000).pk)
    first, second = turn.steps.order_by("index")
    left = Decimal("0.03") - first.cost
    assert first.output_limit == 2_000
    assert second.output_limit == (left * MILLION - second.estimated_input_tokens * DEAREST) // OUTPUT < 2_000


def test_the_tier_asked_for_is_the_one_that_is_reckoned_with() -> None:
    Metered.say([Usage(1, 0, 0, 1)])
    ordinary = run_turn(start(1, model="openai:gpt-5-mini", reply_tokens=1_000).pk).steps.get()
    Metered.say([Usage(1, 0, 0, 1)])
    dear = run_turn(start(1, model="priority:gpt-5-mini", reply_tokens=1_000).pk).steps.get()
    assert ordinary.estimate is not None
    assert dear.estimate == ordinary.estimate * Decimal("1.8")


def test_a_call_without_a_known_price_is_made_once_and_then_waits_for_one() -> None:
    Metered.say([Usage(10, 0, 0, 10), Usage(10, 0, 0, 10)])
    turn = run_turn(start("0.01").pk)
    assert (turn.park_reason, turn.unpriced_steps, len(Metered.requests)) == ("unpriced", 1, 1)


Reply = Callable[[int, int], Usage | ProviderError]
share = st.floats(0, 1)


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    """A reply within its limit to a request within its bound, as ``(input bound, output limit) -> usage``."""
    kind = draw(st.sampled_from(["usual", "usual", "whole", "whole", "unknown", "lost"]))
    shares = [draw(share) for _ in range(5)]

    def reply(bound: int, limit: int) -> Usage | ProviderError:
        if kind == "lost":
            return ProviderError("The connection broke.", fault=Fault.TRANSIENT, billed=True)
        if kind == "unknown":
            return Usage()
        if kind == "whole":
            return Usage(bound, 0, bound, limit, cache_write_1h_tokens=bound)
        whole = int(bound * shares[0])
        read = int(whole * shares[1])
        written = int((whole - read) * shares[2])
        return Usage(whole, read, written, int(limit * shares[3]), cache_write_1h_tokens=int(written * shares[4]))

    return reply


money = st.decimals("0.001", "0.1", places=6)
rate = st.decimals("0", "20", places=3)


@settings(
    max_examples=60,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking a failure would outlast the test's own time
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    said=st.lists(replies(), min_size=1, max_size=6),
    cap=money,
    limit=st.sampled_from([None, 50, 300, 2_000]),
    rates=st.lists(rate, min_size=5, max_size=5),
    listed=st.booleans(),
)
def test_spend_never_passes_the_cap_while_input_and_reply_keep_within_their_bounds(
    said: list[Reply], cap: Decimal, limit: int | None, rates: list[Decimal], listed: bool
) -> None:
    Price.objects.all().delete()
    names = ("input", "cached_input", "cache_write", "cache_write_1h", "output")
    Price.objects.create(provider="local", model="*", **dict(zip(names, rates, strict=True)))
    left = list(said)

    def speak(request: ModelRequest) -> Usage | ProviderError:
        step = Step.objects.latest("pk")
        assert step.output_limit == request.max_output_tokens
        assert step.estimated_input_tokens is not None and step.output_limit is not None
        return left.pop(0)(step.estimated_input_tokens, step.output_limit)

    Metered.say(speak)
    turn = start(cap, model="openai:gpt-5-mini" if listed else "local:llama", reply_tokens=limit)
    while left:
        turn = run_turn(turn.pk)
        assert turn.cost + turn.presumed_cost <= cap
        if turn.status != "queued" or not Turn.objects.filter(pk=turn.pk).update(run_after=None):
            break
    assert turn.park_reason in ("", "max_cost", "provider_error")
