"""What every wire does to a conversation before it is sent again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, Final

from agentturns.cleaning import clean_json
from agentturns.providers.base import ToolRequest

NO_OUTPUT: Final = "(no output)"
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST: Final = 64


def stored(wire: str) -> Any:
    """A stored reply as JSON, equal to what came but for NULs and lone surrogates, which no request can carry."""
    found = json.loads(wire)
    # Raw JSON text holds neither, so only an escape can bring one in.
    return clean_json(found) if "\\u" in wire else found


def replayed_arguments(arguments: str) -> dict[str, Any]:
    """A tool call's arguments as they are sent again: an object, ``{}`` where the model wrote none that is valid.

    Vendors refuse a conversation that holds arguments they cannot read, and would do so on every later request.
    """
    return clean_json(_object_in(arguments) or {})


def replayed_text(arguments: Any) -> str:
    """The same as JSON text: the model's own where it is valid, else that of ``replayed_arguments``."""
    found = arguments if isinstance(arguments, dict) else _object_in(arguments)
    if found is None:
        return "{}"
    cleaned = clean_json(found)
    return arguments if isinstance(arguments, str) and cleaned == found else compact(cleaned)


def fits(calls: Sequence[dict[str, Any]], requests: Sequence[ToolRequest]) -> bool:
    """Whether the calls inside a wire are those of the conversation, one to one."""
    return len(calls) == len(requests)


def foreign_name(name: str) -> str:
    """A tool's name as every vendor accepts it, for a call that another vendor's model made."""
    return _UNFIT.sub("_", name)[:_LONGEST] or "unnamed"


def fit_id(call_id: str) -> str:
    """A call's id as the strictest vendor accepts it: itself where it fits, else one made from it, always the same."""
    if call_id and len(call_id) <= _LONGEST and not _UNFIT.search(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode(errors='replace')).hexdigest()[:24]}"


def compact(value: Any) -> str:
    """JSON text without spaces, keys in their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _object_in(text: Any) -> dict[str, Any] | None:
    try:
        parsed = json.loads(text, parse_constant=_no_json)
    except (ValueError, TypeError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
