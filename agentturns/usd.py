"""Sums of money in USD: how they are read from what people and programs write, and how they are shown."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Final

SMALLEST_USD: Final = Decimal("1E-9")
LARGEST_USD: Final = Decimal(9_000_000_000)  # the last round sum below 2**63 nano-dollars


def parse_usd(value: object, name: str) -> Decimal:
    """A sum in USD, of either sign, from ``Decimal``, ``int`` or text.

    Raises ``ValueError`` with a sentence that names ``name`` and the value: for a float, NaN, an infinity, more than
    nine decimals or more than $9,000,000,000.
    """
    if isinstance(value, bool) or not isinstance(value, Decimal | int | str):
        hint = f"; write Decimal({str(value)!r}) or the text {str(value)!r}" if isinstance(value, float) else ""
        raise ValueError(f"{name}={value!r} is a {type(value).__name__}, but money is a Decimal, int or text{hint}.")
    try:
        amount = Decimal(value.strip() if isinstance(value, str) else value)
    except InvalidOperation:
        raise ValueError(f"{name}={value!r} is not a number; write an amount in USD such as 0.25.") from None
    if not amount.is_finite():
        raise ValueError(f"{name}={value!r} is not a finite amount; write an amount in USD such as 0.25.")
    if abs(amount) > LARGEST_USD:
        raise ValueError(f"{name}={value!r} is beyond ${LARGEST_USD:,}, the largest sum that can be stored.")
    if amount != round_usd(amount):
        raise ValueError(
            f"{name}={value!r} has more than nine decimals; the smallest unit is $0.000000001, so round it first."
        )
    return amount


def round_usd(amount: Decimal) -> Decimal:
    """``amount`` rounded to whole nano-dollars (nine decimals), half up."""
    return amount.quantize(SMALLEST_USD, rounding=ROUND_HALF_UP)


def show_usd(amount: Decimal) -> str:
    """Money as people read it: at least cents, and every further digit that is not zero."""
    text = f"{amount:,.9f}"
    whole, _, digits = text.partition(".")
    return f"${whole}.{digits.rstrip('0').ljust(2, '0')}"
