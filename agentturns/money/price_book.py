"""The operator's own prices: which one counts for a model call, and what the call costs by it.

A rule names a provider's alias and a pattern for the model. For a call, of the rules of its provider that are in force
when it is made, one counts, found in this order:

1. a rule that names the model that served exactly, then one that names the model asked for exactly;
2. a pattern that matches the model that served, then one that matches the model asked for;
3. among several, the one with the most characters that are no wildcard, then with the fewest ``*``;
4. then the one in force since the latest, then the one with the highest number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Final

from agentturns.providers.base import Usage
from agentturns.usd import round_usd

MILLION: Final = 1_000_000
WILDCARDS: Final = {"*": ".*", "?": "."}


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = (WILDCARDS.get(char) or re.escape(char) for char in pattern)
    return re.compile("".join(parts), re.IGNORECASE | re.DOTALL)


def matches(pattern: str, model: str) -> bool:
    """Whether ``pattern`` covers the whole of ``model``.

    ``*`` stands for any text, ``?`` for one character, all else for itself; upper and lower case are the same.
    """
    return _compiled(pattern).fullmatch(model) is not None


@dataclass(frozen=True, slots=True)
class Rates:
    """USD per million tokens. ``cached_input`` and ``cache_write`` are ``input`` where they are None, and
    ``cache_write_1h`` is ``cache_write``.
    """

    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None

    def cost(self, usage: Usage) -> Decimal | None:
        """USD for ``usage``, rounded once, half up, to whole nano-dollars; None where input or output is unknown."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        cached, written = usage.cached_input_tokens or 0, usage.cache_write_tokens or 0
        for_an_hour = min(usage.cache_write_1h_tokens or 0, written)
        # Some servers count the parts beside the whole.
        fresh = max(0, usage.input_tokens - cached - written)
        short = self.input if self.cache_write is None else self.cache_write
        total = (
            fresh * self.input
            + cached * (self.input if self.cached_input is None else self.cached_input)
            + (written - for_an_hour) * short
            + for_an_hour * (short if self.cache_write_1h is None else self.cache_write_1h)
            + usage.output_tokens * self.output
        )
        return round_usd(total / MILLION)


@dataclass(frozen=True, slots=True)
class PriceRule:
    """One price of the operator's: ``rates`` for the models of ``provider`` that ``model`` matches.

    ``effective_from`` is when it comes into force, None for a rule that always was.
    """

    number: int
    provider: str
    model: str
    rates: Rates
    effective_from: datetime | None = None

    def __str__(self) -> str:
        return f"price {self.number}: {self.provider}/{self.model}"

    def names_any(self, *models: str) -> bool:
        """Whether the rule is for a model of one of these names."""
        return any(name and matches(self.model, name) for name in models)

    def covers(self, provider: str, models: Sequence[str], at: datetime) -> bool:
        """Whether the rule is for a call to ``provider`` made ``at`` that goes by one of these names."""
        in_force = self.effective_from is None or self.effective_from <= at
        return in_force and self.provider == provider and self.names_any(*models)


@dataclass(frozen=True, slots=True)
class PriceBook:
    """All rules of the operator's, looked up for one call at a time."""

    rules: tuple[PriceRule, ...] = ()

    @classmethod
    def of(cls, rules: Iterable[PriceRule]) -> PriceBook:
        """The book of these rules, in any order."""
        return cls(tuple(rules))

    def find(self, provider: str, models: Sequence[str], at: datetime) -> PriceRule | None:
        """The rule that counts for a call, None where none covers it.

        ``models`` are the names it goes by: the model that served, then the one asked for.
        """
        covering = [rule for rule in self.rules if rule.covers(provider, models, at)]
        return max(covering, key=lambda rule: _weight(rule, models), default=None)


EMPTY: Final = PriceBook()


def _weight(rule: PriceRule, models: Sequence[str]) -> tuple[bool, int, int, int, float, int]:
    """What makes one rule count before another; the larger counts."""
    pattern = rule.model
    wildcards = sum(pattern.count(char) for char in WILDCARDS)
    first = next(place for place, name in enumerate(models) if name and matches(pattern, name))
    since = float("-inf") if rule.effective_from is None else rule.effective_from.timestamp()
    return (not wildcards, -first, len(pattern) - wildcards, -pattern.count("*"), since, rule.number)
