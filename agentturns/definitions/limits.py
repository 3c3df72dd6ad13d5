"""Caps: what a turn may use up, declared with an agent, a turn or the settings."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeVar

from agentturns.exceptions import ConfigurationError
from agentturns.usd import parse_usd, show_usd

MOST_COUNT: Final = 2**53  # the largest whole number that every JSON reader keeps exact

CapValue = Decimal | int | float
Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class Cap:
    """One axis of a budget: its name, the unit people read, and what happens on a breach unless said otherwise."""

    name: str
    unit: str
    on_breach: str = "park"

    def parse(self, value: object) -> CapValue | None:
        """``value`` as this cap's type; None stays None. Raises ``ValueError`` with a sentence."""
        if value is None:
            return None
        if self.unit == "USD":
            return _usd(value, self.name)
        if self.unit == "seconds":
            return _seconds(value, self.name)
        return _count(value, self.name, self.unit)

    def show(self, value: CapValue) -> str:
        """The value as people read it: ``$0.25``, ``1,200 tokens``, ``90 seconds``."""
        if self.unit == "USD":
            return show_usd(Decimal(value))
        if isinstance(value, float):
            value = round(value, 1)
            value = int(value) if value == int(value) else value
        return f"{value:,} {self.unit if value != 1 else self.unit.removesuffix('s')}"


CAPS: Final[dict[str, Cap]] = {
    cap.name: cap
    for cap in (
        Cap("max_input_tokens", "tokens"),
        Cap("max_new_input_tokens", "tokens"),
        Cap("max_output_tokens", "tokens"),
        Cap("max_cost", "USD"),
        Cap("timeout", "seconds"),
        Cap("max_tool_calls", "calls"),
        Cap("max_steps", "steps", on_breach="fail"),
    )
}


def _usd(value: object, name: str) -> Decimal:
    amount = parse_usd(value, name)
    if amount < 0:
        raise ValueError(f"{name}={value!r} is negative; a cap is 0 or more.")
    return amount


def _seconds(value: object, name: str) -> CapValue:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name}={value!r} is a {type(value).__name__}, but it is a number of seconds such as 300.")
    if not math.isfinite(value):
        raise ValueError(f"{name}={value!r} is not a finite number of seconds; use None for no limit.")
    if value < 0:
        raise ValueError(f"{name}={value!r} is negative; a cap is 0 or more.")
    if value > MOST_COUNT:
        raise ValueError(f"{name}={value!r} is too large; use None for no limit.")
    return value


def _count(value: object, name: str, unit: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}={value!r} is a {type(value).__name__}, but it is a whole number of {unit}.")
    if value < 0:
        raise ValueError(f"{name}={value!r} is negative; a cap is 0 or more.")
    if value > MOST_COUNT:
        raise ValueError(f"{name}={value!r} is too large; use None for no limit.")
    return value


class _Absent:
    """Stands for "not given": the cap is inherited, where None switches it off."""

    def __repr__(self) -> str:
        return "inherit"

    def __reduce__(self) -> str:
        return "INHERIT"  # copies and pickles are this very object, which is compared by identity


INHERIT: Any = _Absent()

# What limits hold beside caps and ``on_breach``.
OPTIONS: Final = ("unpriced", "reserve", "max_tool_repeat", "warn_at")


def _shares(given: object) -> tuple[float, ...]:
    if not isinstance(given, tuple | list) or not all(
        isinstance(share, float | int) and not isinstance(share, bool) and 0 < share < 1 for share in given
    ):
        raise ConfigurationError(f"Limits: warn_at is {given!r}; it is shares between 0 and 1, such as (0.8, 0.95).")
    return tuple(sorted(float(share) for share in given))


def _naming_unknown_caps(limits: type[Given]) -> type[Given]:
    """Make the class refuse an unknown keyword with a sentence that lists the known ones."""
    plain = limits.__init__

    @functools.wraps(plain)
    def init(self: Any, *given: Any, **named: Any) -> None:
        for name in named:
            if name not in {*CAPS, *OPTIONS, "on_breach"}:
                raise ConfigurationError(f"Limits: unknown cap {name!r}; the caps are {', '.join(CAPS)}.")
        plain(self, *given, **named)

    limits.__init__ = init  # type: ignore[method-assign]  # a dataclass makes its own, and only then can it be wrapped
    return limits


@_naming_unknown_caps
@dataclass(frozen=True, slots=True)
class Limits:
    """What a turn may use. A cap left out is inherited; None switches it off; 0 is a cap.

    ``max_cost`` is USD (``Decimal``, ``int`` or text), ``max_*_tokens`` tokens, ``timeout`` seconds of active time
    since a person last resumed the turn, ``max_tool_calls`` and ``max_steps`` counts. ``on_breach`` says per cap
    whether a breach parks or fails the turn (by default only ``max_steps`` fails). ``unpriced="allow"`` lets a turn
    under ``max_cost`` go on after a step whose price is unknown. ``reserve="worst_case"`` parks before a call that
    could pass ``max_cost``.

    ``max_tool_repeat``: a tool asked that often in a row with identical arguments earns the model a notice, and once
    more parks the turn as ``tool_loop`` before the call runs. ``warn_at``, such as ``(0.8, 0.95)``: the shares of
    input tokens, cost, time and steps at which the model is told, once each.

    Raises ``ConfigurationError`` for a value that is negative, not finite or of a wrong type.
    """

    max_cost: Decimal | int | str | None = INHERIT
    max_input_tokens: int | None = INHERIT
    max_new_input_tokens: int | None = INHERIT
    max_output_tokens: int | None = INHERIT
    timeout: float | None = INHERIT
    max_tool_calls: int | None = INHERIT
    max_steps: int | None = INHERIT
    on_breach: Mapping[str, str] = field(default_factory=dict)
    unpriced: str = INHERIT
    reserve: str | None = INHERIT
    max_tool_repeat: int | None = INHERIT
    warn_at: tuple[float, ...] | None = INHERIT

    def __post_init__(self) -> None:
        for name, cap in CAPS.items():
            value = getattr(self, name)
            if value is not INHERIT:
                try:
                    object.__setattr__(self, name, cap.parse(value))
                except ValueError as error:
                    raise ConfigurationError(f"Limits: {error}") from None
        if not isinstance(self.on_breach, Mapping):
            raise ConfigurationError(
                f"Limits: on_breach is {self.on_breach!r}; pass a dict such as {{'max_steps': 'park'}}."
            )
        for name, what in self.on_breach.items():
            if name not in CAPS:
                raise ConfigurationError(f"Limits: on_breach names {name!r}, but the caps are {', '.join(CAPS)}.")
            if what not in ("park", "fail"):
                raise ConfigurationError(f"Limits: on_breach[{name!r}] is {what!r}; it is 'park' or 'fail'.")
        self._check_options()

    def _check_options(self) -> None:
        if self.unpriced is not INHERIT and self.unpriced not in ("park", "allow"):
            raise ConfigurationError(f"Limits: unpriced is {self.unpriced!r}; it is 'park' or 'allow'.")
        if self.reserve is not INHERIT and self.reserve not in (None, "worst_case"):
            raise ConfigurationError(f"Limits: reserve is {self.reserve!r}; it is None or 'worst_case'.")
        repeat = self.max_tool_repeat
        if repeat is not INHERIT and repeat is not None and (type(repeat) is not int or repeat < 1):
            raise ConfigurationError(f"Limits: max_tool_repeat is {repeat!r}; it is a whole number above 0, or None.")
        if self.warn_at is not INHERIT and self.warn_at is not None:
            object.__setattr__(self, "warn_at", _shares(self.warn_at))

    def to_json(self) -> dict[str, Any]:
        """Only what was given, as JSON: money as text, so that it stays exact."""
        given: dict[str, Any] = {}
        for name in (*CAPS, *OPTIONS):
            value = getattr(self, name)
            if value is not INHERIT:
                given[name] = str(value) if isinstance(value, Decimal) else value
        if self.on_breach:
            given["on_breach"] = dict(self.on_breach)
        return given

    @classmethod
    def of(cls, source: Limits | Mapping[str, Any] | None) -> Limits:
        """Limits from themselves, from keyword arguments in a mapping, or from nothing."""
        if source is None:
            return cls()
        if isinstance(source, cls):
            return source
        if not isinstance(source, Mapping):
            raise ConfigurationError(f"limits is {source!r}; pass Limits(…) or a mapping of its arguments.")
        return cls(**source)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the limit in force comes from, so that a page can say it."""

    value: Any
    source: str  # "override", "turn", "agent", "settings" or "" where nothing sets it


def resolve(name: str, *sources: tuple[str, Limits]) -> Standing:
    """The first of ``sources`` that sets ``name``; nothing set is None."""
    for label, limits in sources:
        value = getattr(limits, name)
        if value is not INHERIT:
            return Standing(value, label)
    return Standing(None, "")


def breach_policy(cap: str, *sources: Limits) -> str:
    """``"park"`` or ``"fail"``: the first of ``sources`` that says so, else the cap's own default."""
    for limits in sources:
        if cap in limits.on_breach:
            return limits.on_breach[cap]
    return CAPS[cap].on_breach
