"""Of the operator's prices one counts for a call, always the same one, and it goes before the public list."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentturns.money.estimate import estimate_cost, output_that_fits
from agentturns.money.price_book import PriceBook, PriceRule, Rates, matches
from agentturns.money.pricing import Priced, price
from agentturns.providers.base import Usage

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
MILLION = 1_000_000


def rule(
    number: int, model: str, *, provider: str = "openai", since: datetime | None = None, **rates: Any
) -> PriceRule:
    given = {"input": Decimal(1), "output": Decimal(2), **{name: Decimal(rate) for name, rate in rates.items()}}
    return PriceRule(number, provider, model, Rates(**given), since)


def found(*rules: PriceRule, model: str = "gpt-5-mini", asked: str = "", at: datetime = AT) -> int | None:
    """The number of the rule that counts, the same in whatever order the rules are given."""
    numbers = {
        chosen.number if (chosen := PriceBook.of(order).find("openai", (model, asked), at)) else None
        for order in itertools.permutations(rules)
    }
    assert len(numbers) == 1
    return numbers.pop()


@pytest.mark.parametrize(
    ("pattern", "model", "covered"),
    [
        ("gpt-5-mini", "gpt-5-mini", True),
        ("gpt-5-mini", "gpt-5-mini-2025-08-07", False),
        ("gpt-5*", "gpt-5-mini", True),
        ("gpt-5*", "my-gpt-5", False),
        ("*", "anything at all", True),
        ("gpt-?", "gpt-5", True),
        ("gpt-?", "gpt-55", False),
        ("*-mini*", "gpt-5-mini-2025-08-07", True),
        ("qwen/qwen3-32b", "Qwen/Qwen3-32B", True),
        ("claude-sonnet-5[1m]", "claude-sonnet-5[1m]", True),
        ("claude-sonnet-5[1m]", "claude-sonnet-51", False),
        ("gpt-5.6", "gpt-5-6", False),
        ("", "gpt-5", False),
    ],
)
def test_a_pattern_covers_whole_names_with_two_wildcards_and_nothing_else_special(
    pattern: str, model: str, covered: bool
) -> None:
    assert matches(pattern, model) is covered


def test_an_exact_name_goes_before_a_pattern_and_a_longer_pattern_before_a_shorter() -> None:
    assert found(rule(9, "*"), rule(8, "gpt-*"), rule(7, "gpt-5-m*"), rule(1, "gpt-5-mini")) == 1
    assert found(rule(9, "*"), rule(8, "gpt-*"), rule(7, "gpt-5-m*")) == 7
    assert found(rule(1, "gpt-5-min?"), rule(9, "gpt-5-min*")) == 1


def test_the_name_of_the_model_that_served_goes_before_the_one_asked_for() -> None:
    dated = {"model": "gpt-5-mini-2025-08-07", "asked": "gpt-5-mini"}
    assert found(rule(9, "gpt-5-mini"), rule(1, "gpt-5-mini-2025-08-07"), **dated) == 1
    assert found(rule(1, "gpt-5-mini-*"), rule(9, "gpt-5-min?"), **dated) == 1


def test_an_exact_name_asked_for_goes_before_a_pattern_of_the_one_that_served() -> None:
    assert found(rule(9, "*"), rule(1, "gpt-5-mini"), model="gpt-5-mini-2025-08-07", asked="gpt-5-mini") == 1


def test_the_latest_price_in_force_counts_and_a_coming_one_does_not() -> None:
    years = [rule(year - 2000, "gpt-*", since=datetime(year, 1, 1, tzinfo=UTC)) for year in (2025, 2026, 2027)]
    assert found(*years) == 26
    assert found(*years, at=datetime(2026, 1, 1, tzinfo=UTC)) == 26
    assert found(*years, at=datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC)) == 25
    assert found(*years, at=datetime(2024, 6, 1, tzinfo=UTC)) is None


def test_a_price_without_a_date_always_was_in_force_and_gives_way_to_a_dated_one() -> None:
    always, dated = rule(9, "gpt-*"), rule(1, "gpt-*", since=datetime(2026, 1, 1, tzinfo=UTC))
    assert found(always, dated) == 1
    assert found(always, dated, at=datetime(2001, 1, 1, tzinfo=UTC)) == 9


def test_a_more_special_price_goes_before_a_later_one() -> None:
    assert found(rule(1, "gpt-5-mini"), rule(9, "gpt-*", since=AT - timedelta(days=1))) == 1


def test_between_equals_the_highest_number_counts() -> None:
    assert found(rule(3, "gpt-*"), rule(5, "GPT-*"), rule(4, "gpt-*")) == 5


def test_a_price_is_for_its_providers_alias_alone() -> None:
    book = PriceBook.of([rule(1, "*", provider="local")])
    assert book.find("openai", ("gpt-5-mini", ""), AT) is None
    assert book.find("local", ("gpt-5-mini", ""), AT) is not None


def cost(usage: Usage, **rates: Any) -> Decimal | None:
    return rule(1, "*", **rates).rates.cost(usage)


def test_each_part_of_the_input_is_paid_once_at_its_own_rate() -> None:
    rates = {"input": 2, "cached_input": "0.2", "cache_write": "2.5", "cache_write_1h": 4, "output": 10}
    usage = Usage(1_000_000, 300_000, 200_000, 50_000, cache_write_1h_tokens=80_000)
    by_hand = (500_000 * 2 + 300_000 * Decimal("0.2") + 120_000 * Decimal("2.5") + 80_000 * 4 + 50_000 * 10) / MILLION
    assert cost(usage, **rates) == by_hand == Decimal("2.18")


def test_empty_rates_are_inputs_and_an_hour_costs_what_five_minutes_do() -> None:
    read, written = Usage(MILLION, MILLION, 0, 0), Usage(MILLION, 0, MILLION, 0)
    for_an_hour = Usage(MILLION, 0, MILLION, 0, cache_write_1h_tokens=MILLION)
    assert [cost(usage, input=3) for usage in (read, written, for_an_hour)] == [3, 3, 3]
    assert [cost(usage, input=3, cache_write=5) for usage in (read, written, for_an_hour)] == [3, 5, 5]


def test_a_rate_of_nothing_is_a_rate() -> None:
    assert cost(Usage(MILLION, MILLION, 0, 0), input=3, cached_input=0) == 0
    assert cost(Usage(MILLION, 0, 0, MILLION), input=0, output=0) == 0


def test_a_cost_is_rounded_once_half_up_to_the_nano_dollar() -> None:
    # One token at $0.0005 a million is half a nano-dollar; rounded apart, two of them would be two.
    assert cost(Usage(1, 0, 0, 0), input="0.0005") == Decimal("0.000000001")
    assert cost(Usage(1, 0, 0, 1), input="0.0005", output="0.0005") == Decimal("0.000000001")
    assert cost(Usage(1, 0, 0, 0), input="0.000499999") == 0


@pytest.mark.parametrize("usage", [Usage(), Usage(input_tokens=5), Usage(output_tokens=5)])
def test_an_unknown_usage_has_no_cost(usage: Usage) -> None:
    assert cost(usage) is None


def priced(usage: Usage, *rules: PriceRule, **where: Any) -> Priced | None:
    options = {"model": "gpt-5-mini", "pricing_id": "openai", "provider": "openai", "at": AT, **where}
    return price(usage, book=PriceBook.of(rules), **options)


def test_the_operators_price_goes_before_the_list_and_is_the_source() -> None:
    usage = Usage(input_tokens=MILLION, output_tokens=MILLION)
    assert priced(usage, rule(12, "gpt-*")) == Priced(Decimal(3), "price 12: openai/gpt-*")
    assert priced(usage, rule(12, "gpt-*"), options={"service_tier": "flex"}) == Priced(
        Decimal(3), "price 12: openai/gpt-*"
    )


def test_the_list_counts_where_no_price_of_the_operator_does() -> None:
    usage = Usage(input_tokens=MILLION, output_tokens=MILLION)
    by_list = priced(usage)
    assert by_list is not None and by_list.cost == Decimal("2.25")
    assert priced(usage, rule(1, "gpt-4*"), rule(2, "*", provider="local")) == by_list
    assert priced(usage, rule(1, "*", since=AT + timedelta(seconds=1))) == by_list


def test_a_price_covers_what_no_list_knows() -> None:
    usage = Usage(input_tokens=MILLION, output_tokens=0)
    local = rule(3, "llama*", provider="local", input="0.05")
    found = priced(usage, local, model=("", "llama-4"), pricing_id="", provider="local")
    assert found == Priced(Decimal("0.05"), "price 3: local/llama*")


@pytest.mark.parametrize("dearest", ["input", "cached_input", "cache_write", "cache_write_1h"])
def test_a_worst_case_is_at_the_dearest_rate_of_the_input(dearest: str) -> None:
    rates = {"input": 2, "cached_input": 1, "cache_write": 3, "cache_write_1h": 4, "output": 10, dearest: 7}
    worst = estimate_cost(
        MILLION,
        MILLION,
        model="llama-4",
        pricing_id="",
        at=AT,
        worst_case=True,
        book=PriceBook.of([rule(1, "*", provider="local", **rates)]),
        provider="local",
    )
    assert worst == 17


def test_a_worst_case_by_the_list_writes_the_cache_for_an_hour() -> None:
    worst = estimate_cost(MILLION, MILLION, model="claude-sonnet-5", pricing_id="anthropic", at=AT, worst_case=True)
    assert worst == 4 + 10


tokens = st.integers(0, 500_000)
rate = st.decimals(0, 100, places=9)


@given(tokens, tokens, tokens, tokens, st.lists(rate, min_size=5, max_size=5))
def test_no_split_of_the_input_costs_more_than_the_worst_case(
    fresh: int, cached: int, short: int, for_an_hour: int, rates: list[Decimal]
) -> None:
    book = PriceBook.of([PriceRule(1, "local", "*", Rates(*rates))])
    usage = Usage(
        fresh + cached + short + for_an_hour, cached, short + for_an_hour, 1000, cache_write_1h_tokens=for_an_hour
    )
    spent = price(usage, model="m", pricing_id="", at=AT, book=book, provider="local")
    worst = estimate_cost(
        usage.input_tokens or 0, 1000, model="m", pricing_id="", at=AT, worst_case=True, book=book, provider="local"
    )
    assert spent is not None and worst is not None
    assert spent.cost <= worst


@given(st.integers(0, 5000), st.decimals(0, 1, places=3), st.decimals("0.001", 100, places=3), st.integers(0, 9000))
def test_the_limit_that_fits_is_the_largest_one(most: int, left: Decimal, per_token: Decimal, base: int) -> None:
    def cost_of(limit: int) -> Decimal:
        return (base + limit * per_token) / 10_000

    fits = output_that_fits(left, most, cost_of)
    assert -1 <= fits <= most
    assert fits == -1 or cost_of(fits) <= left
    assert fits == most or cost_of(fits + 1) > left
