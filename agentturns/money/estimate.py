"""What a model call may use and cost, reckoned before it is made: rather too much than too little."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from agentturns.money.price_book import EMPTY, PriceBook
from agentturns.money.pricing import price
from agentturns.providers.base import Usage

DEFAULT_REPLY_TOKENS: Final = 4096
# A reply cut shorter than this is of no use, so a call that leaves no room for it is not made.
LEAST_USEFUL_REPLY: Final = 256

# Measured with two OpenAI vocabularies and Claude's published one, in UTF-8 bytes a token: prose 3.7 to 5.3, code
# 4.4, JSON 2.3 to 2.5, Chinese, Japanese and Korean 2.3 to 3.0, Cyrillic 3.6. Only lists of numbers, ids and base64
# (1.2 to 1.7) and scripts that a vocabulary hardly knows come below two.
TOKENS_PER_BYTE: Final = 0.5
# What vendors add to a request by themselves: roles, separators, a preamble for tools.
TOKENS_PER_CALL: Final = 16
MARGIN: Final = 1.25


def estimate_tokens(
    appended_bytes: int,
    *,
    last_input: int | None = None,
    last_output: int | None = None,
    ratio: float | None = None,
) -> int:
    """Input tokens of the next call, on the high side.

    ``appended_bytes`` is the UTF-8 length of what the request holds beyond the previous one and its reply, whose
    real tokens are ``last_input`` and ``last_output``; of the whole request where these are not known. ``ratio`` is
    this turn's own tokens per byte, see :func:`tokens_per_byte`.
    """
    rate = TOKENS_PER_BYTE if ratio is None else min(1.0, ratio * MARGIN)
    known = (last_input + (last_output or 0)) if last_input is not None else 0
    return known + math.ceil(appended_bytes * rate) + TOKENS_PER_CALL


def tokens_per_byte(input_tokens: int | None, request_bytes: int) -> float | None:
    """The ratio that a finished call showed; None where it shows none."""
    if not input_tokens or request_bytes <= 0:
        return None
    return input_tokens / request_bytes


def estimate_cost(
    input_tokens: int,
    output_limit: int | None,
    *,
    model: str | Sequence[str],
    pricing_id: str,
    at: datetime,
    options: Mapping[str, Any] | None = None,
    worst_case: bool = False,
    book: PriceBook = EMPTY,
    provider: str = "",
) -> Decimal | None:
    """USD for a call of this size at the full input rate, None where no price is known.

    ``output_limit`` is the limit sent with the call, in tokens; without one a reply of ``DEFAULT_REPLY_TOKENS`` is
    assumed. ``worst_case`` takes the dearest input rate, which is mostly that of writing the cache for an hour. The
    rest is as for :func:`agentturns.money.pricing.price`.
    """
    output = DEFAULT_REPLY_TOKENS if output_limit is None else output_limit
    whole = Usage(input_tokens=input_tokens, output_tokens=output)
    usages = [whole]
    if worst_case:
        written = replace(whole, cache_write_tokens=input_tokens)
        usages += [
            replace(whole, cached_input_tokens=input_tokens),
            written,
            replace(written, cache_write_1h_tokens=input_tokens),
        ]
    priced = [
        price(usage, model=model, pricing_id=pricing_id, at=at, options=options, book=book, provider=provider)
        for usage in usages
    ]
    return max((found.cost for found in priced if found), default=None)


def output_that_fits(left: Decimal, most: int, cost_of: Callable[[int], Decimal]) -> int:
    """The largest limit on a reply, in tokens, not above ``most``, with which a call costs no more than ``left`` USD.

    ``cost_of`` says what a call with such a limit could cost, a larger one no less. -1 where not even 0 fits.
    """
    return bisect_right(range(most + 1), left, key=cost_of) - 1
