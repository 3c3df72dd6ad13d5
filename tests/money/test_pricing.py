"""A reply costs what the list says for its day, or its price is unknown; never wrongly nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import genai_prices
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentturns.money.pricing import Priced, price
from agentturns.providers.base import Usage

AT = datetime(2026, 11, 30, tzinfo=UTC)


def cost(usage: Usage, model: str | tuple[str, ...] = "gpt-5-mini", **where: Any) -> Decimal | None:
    found = price(usage, model=model, pricing_id=where.pop("pricing_id", "openai"), at=where.pop("at", AT), **where)
    return found.cost if found else None


def test_input_and_output_are_priced_at_their_rates() -> None:
    assert cost(Usage(input_tokens=1_000_000, output_tokens=0)) == Decimal("0.25")
    assert cost(Usage(input_tokens=0, output_tokens=1_000_000)) == Decimal(2)


def test_the_source_names_list_vendor_and_model() -> None:
    found = price(Usage(input_tokens=1, output_tokens=1), model="gpt-5-mini", pricing_id="openai", at=AT)
    assert found == Priced(Decimal("0.00000225"), f"genai-prices {genai_prices.__version__} openai/gpt-5-mini")


def test_cached_input_is_paid_once_at_the_cached_rate() -> None:
    all_fresh = cost(Usage(input_tokens=1_000_000, output_tokens=0))
    all_cached = cost(Usage(input_tokens=1_000_000, cached_input_tokens=1_000_000, output_tokens=0))
    half = cost(Usage(input_tokens=1_000_000, cached_input_tokens=500_000, output_tokens=0))
    assert (all_fresh, all_cached, half) == (Decimal("0.25"), Decimal("0.025"), Decimal("0.1375"))


def test_reasoning_is_a_part_of_the_output_and_paid_once() -> None:
    plain = cost(Usage(input_tokens=10, output_tokens=1000))
    assert cost(Usage(input_tokens=10, output_tokens=1000, reasoning_tokens=900)) == plain


def test_reasoning_with_a_rate_of_its_own_is_paid_at_that_rate_and_no_other() -> None:
    def thought(reasoning: int) -> Decimal | None:
        usage = Usage(input_tokens=0, output_tokens=1_000_000, reasoning_tokens=reasoning)
        return cost(usage, "sonar-deep-research", pricing_id="perplexity")

    assert (thought(0), thought(400_000), thought(1_000_000)) == (Decimal(8), Decimal(6), Decimal(3))
    assert thought(2_000_000) == thought(1_000_000)


def test_five_minute_and_one_hour_cache_writes_have_their_own_rates() -> None:
    def written(in_all: int, for_an_hour: int | None) -> Decimal | None:
        usage = Usage(1_000_000, 0, in_all, 0, cache_write_1h_tokens=for_an_hour)
        return cost(usage, "claude-sonnet-5", pricing_id="anthropic")

    assert written(0, None) == Decimal(2)
    assert written(1_000_000, None) == Decimal("2.5")
    assert written(1_000_000, 1_000_000) == Decimal(4)
    assert written(1_000_000, 200_000) == Decimal("2.8")


def test_the_day_of_the_call_selects_the_price() -> None:
    usage = Usage(input_tokens=100_000, output_tokens=0)
    before, after = datetime(2026, 8, 20, tzinfo=UTC), datetime(2026, 8, 22, tzinfo=UTC)
    assert cost(usage, "gpt-5.6", at=before) == Decimal("0.5")
    assert cost(usage, "gpt-5.6", at=after) == Decimal("0.4")


def test_the_service_tier_selects_the_price() -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    assert cost(usage, options={"service_tier": "flex"}) == Decimal("0.125")
    assert cost(usage, options={"service_tier": "priority"}) == Decimal("0.45")
    assert cost(usage, options={"service_tier": "auto"}) == Decimal("0.25")


def test_a_special_tier_is_named_in_the_source_and_the_ordinary_is_not() -> None:
    def source(tier: str) -> str:
        usage = Usage(input_tokens=1, output_tokens=1)
        found = price(usage, model="gpt-5-mini", pricing_id="openai", at=AT, options={"service_tier": tier})
        assert found is not None
        return found.source

    assert source("flex").endswith("openai/gpt-5-mini flex")
    assert source("default").endswith("openai/gpt-5-mini")


def test_a_dated_name_has_the_price_of_its_model() -> None:
    usage = Usage(input_tokens=1000, output_tokens=1000)
    assert cost(usage, "gpt-5-mini-2025-08-07") == cost(usage)


def test_the_model_that_served_goes_before_the_one_asked_for() -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    assert cost(usage, ("gpt-5-mini", "gpt-5.6")) == Decimal("0.25")
    assert cost(usage, ("a-private-deployment", "gpt-5-mini")) == Decimal("0.25")
    assert cost(usage, ("", "gpt-5-mini")) == Decimal("0.25")


UNKNOWN = {
    "unknown model": {"model": "no-such-model"},
    "unknown vendor": {"pricing_id": "no-such-vendor"},
    "no vendor": {"pricing_id": ""},
    "a model without token prices": {"model": "gpt-realtime-whisper"},
    "a model without an output price": {"model": "text-embedding-ada-002"},
}


@pytest.mark.parametrize("where", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_the_list_does_not_know_is_unpriced_and_not_free(where: dict[str, Any]) -> None:
    assert cost(Usage(input_tokens=1000, output_tokens=1000), **where) is None


@pytest.mark.parametrize("usage", [Usage(), Usage(input_tokens=5), Usage(output_tokens=5)])
def test_a_reply_without_its_usage_is_unpriced_and_not_free(usage: Usage) -> None:
    assert cost(usage) is None


def test_a_server_that_counts_its_cache_beside_the_input_is_still_priced() -> None:
    beside = Usage(input_tokens=10, cached_input_tokens=400, output_tokens=0)
    assert cost(beside) == cost(Usage(input_tokens=400, cached_input_tokens=400, output_tokens=0))


def test_a_cost_is_rounded_once_half_up_to_the_nano_dollar() -> None:
    # One cached token costs 25 nano-dollars, and half of that at the flex rate.
    assert cost(Usage(input_tokens=1, cached_input_tokens=1, output_tokens=0)) == Decimal("0.000000025")
    flex = {"service_tier": "flex"}
    assert cost(Usage(input_tokens=1, cached_input_tokens=1, output_tokens=0), options=flex) == Decimal("0.000000013")


tokens = st.integers(0, 200_000)


@given(tokens, tokens, tokens, tokens)
def test_more_tokens_never_cost_less(fresh: int, cached: int, output: int, more: int) -> None:
    known = cost(Usage(fresh + cached, cached, None, output))
    larger = cost(Usage(fresh + cached + more, cached, None, output + more))
    assert known is not None and larger is not None
    assert known <= larger
    assert known == round(known, 9)
