"""What a reply cost: by the operator's prices, else by the public list of genai-prices; exact, as of its own time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import genai_prices
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, ModelPrice
from genai_prices.types import Provider as Vendor

from agentturns.money.price_book import EMPTY, PriceBook
from agentturns.providers.base import Usage
from agentturns.usd import round_usd

SELECTORS: Final = ("service_tier", "speed", "processing")
ORDINARY: Final = ("auto", "default", "standard")


@dataclass(frozen=True, slots=True)
class Priced:
    """A known cost in USD, rounded once to whole nano-dollars, and the price it rests on."""

    cost: Decimal
    source: str


def price(
    usage: Usage,
    *,
    model: str | Sequence[str],
    pricing_id: str,
    at: datetime,
    options: Mapping[str, Any] | None = None,
    book: PriceBook = EMPTY,
    provider: str = "",
) -> Priced | None:
    """The cost of ``usage``, None where it is not known (which is not zero).

    ``model`` is a name, or names of which the first known one counts: the model that served, then the one asked for.
    A rule of ``book`` for ``provider``, an alias, goes before the list, whatever the service tier.
    ``pricing_id`` is the vendor's id in genai-prices, ``at`` when the call was made (it selects the price of that
    day). Of ``options``, ``service_tier``, ``speed`` and ``processing`` (``"batch"``) select a price of the list where
    the vendor has several; what the reply says of them (``ModelReply.price_context``) goes before what was asked for.
    """
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    names = (model,) if isinstance(model, str) else model
    rule = book.find(provider, names, at)
    if rule is not None and (cost := rule.rates.cost(usage)) is not None:
        return Priced(cost, str(rule))
    return _by_list(usage, names, pricing_id, at, options or {})


def _by_list(
    usage: Usage, names: Sequence[str], pricing_id: str, at: datetime, options: Mapping[str, Any]
) -> Priced | None:
    if not pricing_id:
        return None
    found = next((known for name in names if (known := _look_up(name, pricing_id))), None)
    if found is None:
        return None
    vendor, info = found
    context = {name: str(value) for name in SELECTORS if (value := options.get(name))}
    try:
        calculation = info.calc_price(
            _units(usage),
            vendor,
            genai_request_timestamp=at,
            price_context=context or None,
        )
    except (LookupError, ValueError):
        return None
    if not _covers(calculation.model_price, usage):
        return None
    source = f"genai-prices {genai_prices.__version__} {vendor.id}/{info.id}"
    special = sorted(value for value in context.values() if value not in ORDINARY)
    return Priced(round_usd(calculation.total_price), " ".join((source, *special)))


def _look_up(name: str, pricing_id: str) -> tuple[Vendor, ModelInfo] | None:
    if not name:
        return None
    try:
        return get_snapshot().find_provider_model(name, None, pricing_id, None)
    except LookupError:
        return None


def _units(usage: Usage) -> genai_prices.Usage:
    """The usage in the list's terms: whole numbers that hold their parts, else it refuses them."""
    cached, written = usage.cached_input_tokens or 0, usage.cache_write_tokens or 0
    written_1h = min(usage.cache_write_1h_tokens or 0, written)
    output = usage.output_tokens or 0
    return genai_prices.Usage(
        # A server that reports the parts beside the whole would otherwise be unpriced for good.
        input_tokens=max(usage.input_tokens or 0, cached + written),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=written_1h,
        output_tokens=output,
        output_reasoning_tokens=min(usage.reasoning_tokens or 0, output),
    )


def _covers(rates: ModelPrice, usage: Usage) -> bool:
    """Whether the list has a rate for what was used: it prices what it has no rate for at nothing."""
    unrated = (rates.input_mtok is None and usage.input_tokens) or (rates.output_mtok is None and usage.output_tokens)
    return not unrated and not (rates.input_mtok is None and rates.output_mtok is None)
