"""What every wire does to a conversation before it is sent again."""

from __future__ import annotations

import json
from typing import Any

from agentturns.cleaning import clean_json

NO_TEXT = "(no output)"


def replayed_arguments(arguments: str) -> dict[str, Any]:
    """A tool call's arguments as they are sent again: an object, ``{}`` where the model wrote none that is valid.

    Vendors refuse a conversation that holds arguments they cannot read, and would do so on every later request.
    """
    try:
        parsed = json.loads(arguments, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return {}
    return clean_json(parsed) if isinstance(parsed, dict) else {}


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
