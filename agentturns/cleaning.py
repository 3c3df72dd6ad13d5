"""Text and JSON from outside, cleaned once on the way in.

PostgreSQL refuses NUL in text and jsonb, and no encoder accepts a lone surrogate; both become U+FFFD.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean_text(text: str) -> str:
    """``text`` with each NUL and lone surrogate replaced by U+FFFD."""
    return _UNSTORABLE.sub(REPLACEMENT, text)


def clean_json(value: Any) -> Any:
    """A JSON value with every string (keys too) cleaned as by :func:`clean_text`."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value


def require_json(value: Any, name: str) -> Any:
    """``value`` as clean plain JSON (tuples become lists).

    Raises ``TypeError`` or ``ValueError`` with a sentence that names ``name`` and the offending part.
    """
    return clean_json(_plain(value, name))


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value!r}, which JSON cannot hold; use None or a string instead.")
        return value
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}, but JSON keys are strings.")
        return {key: _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise TypeError(
        f"{where} is of type {type(value).__name__}, which is not JSON; "
        "pass text, numbers, booleans, None, lists or dicts."
    )


def canonical_json(value: Any) -> str:
    """One text for equal JSON values: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def hash_json(value: Any) -> str:
    """SHA-256, in hexadecimal, of :func:`canonical_json`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
