"""The operator's prices as a running turn sees them: read once per claim, and again now and then."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from django.db import DatabaseError, InterfaceError, connections

from agentturns.conf import conf
from agentturns.engine.connections import is_contention, is_lost
from agentturns.models.price import read_book
from agentturns.models.turn import Turn
from agentturns.money.price_book import PriceBook

# A price entered while a turn runs counts for its calls from so many seconds later on.
READ_AGAIN_SECONDS: Final = 5.0
_KEPT: Final = "_agentturns_prices"


@dataclass(frozen=True, slots=True)
class _Reading:
    book: PriceBook
    at: float


def prices_for(turn: Turn) -> PriceBook:
    """The prices for the next call of a claimed turn. ``turn`` is the claim's own instance and keeps what was read."""
    kept: _Reading | None = turn.__dict__.get(_KEPT)
    if kept is None or time.monotonic() - kept.at >= READ_AGAIN_SECONDS:
        kept = turn.__dict__[_KEPT] = _Reading(_read(), time.monotonic())
    return kept.book


def _read() -> PriceBook:
    """The book; on a new connection where the old one was lost."""
    connection = connections[conf.DATABASE]
    try:
        return read_book()
    except (DatabaseError, InterfaceError) as error:
        if not (is_lost(error, connection) or is_contention(error)) or connection.in_atomic_block:
            raise
    connection.close_if_unusable_or_obsolete()
    return read_book()
