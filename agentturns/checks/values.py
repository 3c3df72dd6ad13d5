"""The ``AGENTTURNS`` setting itself: its keys, and the types of its values."""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from agentturns.checks.table import number, reported
from agentturns.conf import Settings
from agentturns.definitions.limits import Limits
from agentturns.exceptions import ConfigurationError

KNOWN = {key: value for key, value in vars(Settings).items() if isinstance(value, property)}
PROVIDER_KEYS = ("BACKEND", "OPTIONS")
MAY_BE_EMPTY = ("APPROVAL_COORDINATOR", "MAY_DECIDE")  # dotted paths that "" switches off

Check = Callable[..., list[CheckMessage]]


def check_values(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Keys that do not exist, and values of a wrong type."""
    given = getattr(settings, "AGENTTURNS", {})
    if not isinstance(given, dict):
        return [
            Error(
                f"AGENTTURNS is a {type(given).__name__}, but it is a dict.",
                hint="Write AGENTTURNS = {} and name in it what differs from the defaults in agentturns/conf.py.",
                id="agentturns.E001",
            )
        ]
    messages = [_unknown(key) for key in given if key not in KNOWN]
    for key, value in given.items():
        if key in KNOWN:
            messages += _check_value(key, value)
    return messages


def with_valid_values(check: Check) -> Check:
    """``check``, left out while ``AGENTTURNS`` itself has errors: it would only stumble over the same values."""

    @functools.wraps(check)
    def checked(*args: Any, **kwargs: Any) -> list[CheckMessage]:
        return [] if any(message.is_serious() for message in check_values()) else check(*args, **kwargs)

    return checked


def _unknown(key: object) -> CheckMessage:
    near = get_close_matches(str(key).upper(), KNOWN, n=1)
    return Warning(
        f"AGENTTURNS has the key {key!r}, which does not exist and changes nothing.",
        hint=f"Did you mean {near[0]!r}?" if near else f"The keys are {', '.join(sorted(KNOWN))}.",
        id="agentturns.W001",
    )


def _check_value(key: str, value: object) -> list[CheckMessage]:
    switched_off = key in MAY_BE_EMPTY and value == ""
    wanted = "" if switched_off else _wanted(typing.get_type_hints(KNOWN[key].fget)["return"], value)
    if wanted:
        # Of what should be a dict only the type: where providers are meant, the value may hold a key.
        shown = f"a {type(value).__name__}" if wanted == "a dict" else repr(value)
        return [
            Error(
                f"AGENTTURNS[{key!r}] is {shown}, but it is {wanted}.",
                hint=f"Correct it, or leave {key} out to get the default.",
                id="agentturns.E002",
            )
        ]
    if key == "DEFAULT_LIMITS":
        return _check_limits(value)
    if key == "PROVIDERS" and isinstance(value, dict):
        return [message for alias, entry in value.items() for message in _check_provider(alias, entry)]
    return []


def _wanted(declared: Any, value: object) -> str:
    """What a value of the declared type is, in words, when ``value`` is none; else ""."""
    amount = number(value)
    positive = amount is not None and math.isfinite(amount) and amount > 0
    kinds: dict[Any, tuple[bool, str]] = {
        int: (positive and isinstance(value, int), "a whole number above 0"),
        float: (positive, "a number above 0"),
        str: (isinstance(value, str) and value != "", "text"),
        dict: (isinstance(value, dict), "a dict"),
    }
    fits, words = kinds.get(typing.get_origin(declared) or declared, (True, ""))
    return "" if fits else words


def _check_limits(value: Any) -> list[CheckMessage]:
    try:
        Limits.of(value)
    except ConfigurationError as error:
        return [
            Error(
                f"AGENTTURNS['DEFAULT_LIMITS'] is refused: {error}",
                hint="Its keys are the keyword arguments of agentturns.Limits.",
                id="agentturns.E003",
            )
        ]
    return []


def _check_provider(alias: object, entry: Any) -> list[CheckMessage]:
    where = f"AGENTTURNS['PROVIDERS'][{alias!r}]"
    hint = "Write it as {'BACKEND': 'agentturns.providers.openai.OpenAI', 'OPTIONS': {…}}."
    if not isinstance(entry, dict):
        return [Error(f"{where} is a {type(entry).__name__}, but it is a dict.", hint=hint, id="agentturns.E004")]
    unknown = [key for key in entry if key not in PROVIDER_KEYS]
    # Never the values: an option may be a key.
    return reported(
        [
            (
                not isinstance(entry.get("BACKEND"), str),
                Error(f"{where} has no BACKEND that is text.", hint=hint, id="agentturns.E004"),
            ),
            (
                not isinstance(entry.get("OPTIONS", {}), dict),
                Error(f"{where} has OPTIONS that are no dict.", hint=hint, id="agentturns.E004"),
            ),
            (
                bool(unknown),
                Warning(
                    f"{where} has {', '.join(map(repr, unknown))}, which changes nothing.",
                    hint="Options of the provider go inside OPTIONS.",
                    id="agentturns.W001",
                ),
            ),
        ]
    )
