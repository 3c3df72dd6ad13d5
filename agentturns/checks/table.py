"""Checks as tables: each row says when something is wrong, and what to tell about it."""

from __future__ import annotations

from collections.abc import Iterable

from django.core.checks import CheckMessage

Row = tuple[bool, CheckMessage]


def reported(rows: Iterable[Row]) -> list[CheckMessage]:
    """The messages of the rows whose condition holds."""
    return [message for wrong, message in rows if wrong]


def number(value: object) -> float | None:
    """``value`` where it can be compared with a number, else None: a setting of a wrong type is reported once."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
