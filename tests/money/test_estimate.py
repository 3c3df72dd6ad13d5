"""An estimate before a call is rather too high than too low, for every kind of text people send."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from agentturns.money.estimate import (
    DEFAULT_REPLY_TOKENS,
    TOKENS_PER_CALL,
    estimate_cost,
    estimate_tokens,
    tokens_per_byte,
)

AT = datetime(2026, 11, 30, tzinfo=UTC)

# Texts with their real length: the most that o200k_base, cl100k_base and Claude's published vocabulary make of them.
MEASURED = {
    "English": (
        "The customer called yesterday about an order that never arrived, and we agreed to refund the shipping fee "
        "while the replacement is on its way.",
        27,
    ),
    "JSON": (json.dumps([{"id": n * 7919, "order_number": f"A-{100_000 + n * 37}"} for n in range(3)]), 52),
    "Chinese": ("今天下午三点我们在公司会议室讨论了新产品的发布计划，客户希望在下个月之前收到退款。", 44),
    "Japanese": ("お客様からのご注文について、配送が遅れていることをお詫び申し上げます。", 40),
    "Korean": ("고객님의 주문이 지연되고 있어 죄송합니다. 환불 절차는 영업일 기준 3일 이내에 완료될 예정입니다.", 58),
    "Russian": ("Клиент сообщил, что заказ не был доставлен вовремя, и попросил вернуть деньги.", 38),
}


@pytest.mark.parametrize(("text", "real"), MEASURED.values(), ids=MEASURED.keys())
def test_a_first_estimate_is_above_the_real_count(text: str, real: int) -> None:
    estimated = estimate_tokens(len(text.encode())) - TOKENS_PER_CALL
    assert real <= estimated <= 3 * real


def test_a_later_estimate_starts_from_what_the_last_call_really_used() -> None:
    assert estimate_tokens(0, last_input=10_000, last_output=500) == 10_500 + TOKENS_PER_CALL
    assert estimate_tokens(1000, last_input=10_000, last_output=500) == 11_000 + TOKENS_PER_CALL


def test_an_unknown_output_of_the_last_call_counts_as_none() -> None:
    assert estimate_tokens(0, last_input=10_000) == 10_000 + TOKENS_PER_CALL


def test_a_ratio_learned_from_the_turn_replaces_the_general_one_with_a_margin() -> None:
    learned = tokens_per_byte(1000, 5000)
    assert learned == 0.2
    assert estimate_tokens(4000, last_input=1000, last_output=0, ratio=learned) == 1000 + 1000 + TOKENS_PER_CALL


def test_no_text_has_more_tokens_than_bytes() -> None:
    assert estimate_tokens(1000, ratio=3.0) == 1000 + TOKENS_PER_CALL


@pytest.mark.parametrize(("tokens", "size"), [(None, 100), (0, 100), (100, 0)])
def test_a_call_without_figures_teaches_no_ratio(tokens: int | None, size: int) -> None:
    assert tokens_per_byte(tokens, size) is None


def estimated(limit: int | None, *, model: str = "gpt-5-mini", worst_case: bool = False) -> Decimal | None:
    return estimate_cost(1_000_000, limit, model=model, pricing_id="openai", at=AT, worst_case=worst_case)


def test_an_estimated_cost_is_the_full_input_rate_and_the_limit_on_the_reply() -> None:
    assert estimated(1_000_000) == Decimal("2.25")
    assert estimated(0) == Decimal("0.25")


def test_without_a_limit_a_reply_of_usual_length_is_assumed() -> None:
    assert estimated(None) == estimated(DEFAULT_REPLY_TOKENS)


def test_the_worst_case_writes_the_whole_input_to_the_cache() -> None:
    plain, worst = estimated(0, model="gpt-5.6"), estimated(0, model="gpt-5.6", worst_case=True)
    assert plain is not None and worst == plain * Decimal("1.25")


def test_the_worst_case_of_a_vendor_that_writes_for_nothing_is_the_full_rate() -> None:
    assert estimated(0, worst_case=True) == estimated(0)


def test_an_unknown_model_has_no_estimated_cost() -> None:
    assert estimated(None, model="no-such-model") is None
