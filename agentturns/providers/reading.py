"""Reads what servers send: all of them mean the same wire, and each leaves out or adds something."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from agentturns.cleaning import clean_text
from agentturns.providers.base import ToolRequest
from agentturns.providers.faults import Endpoint, error_inside, malformed, unreadable


@dataclass(slots=True)
class Said:
    """What a reply says: its text, the model's thoughts as far as they are shown, and its calls."""

    text: str = ""
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolRequest] = field(default_factory=list)

    def blocks(self) -> tuple[dict[str, Any], ...]:
        """The same as JSON for people."""
        return (
            *({"type": "reasoning", "text": thought} for thought in self.thoughts),
            *([{"type": "text", "text": self.text}] if self.text else []),
            *(
                {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": call.arguments}
                for call in self.calls
            ),
        )


def load_reply(endpoint: Endpoint, wire: str) -> dict[str, Any]:
    """A reply's JSON object. Raises ``ProviderError`` where it is none, or is an error in the place of a reply."""
    try:
        reply = json.loads(wire, parse_constant=no_json)
    except (ValueError, RecursionError):
        raise unreadable(endpoint, wire) from None
    if not isinstance(reply, dict):
        raise malformed(endpoint, "is no JSON object")
    if reply.get("error"):
        raise error_inside(endpoint, reply["error"])
    return reply


def text(value: Any) -> str:
    """A string, without what no database stores, "" for anything else."""
    return clean_text(value) if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    """An object as it is, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """The objects in a list, nothing for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def count(value: Any) -> int | None:
    """A number of tokens; None where the server gave none, or none that can be."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return int(value)


def joined_text(content: Any) -> str:
    """The text of a message's content: a string, or the text parts of a list."""
    if isinstance(content, list):
        return "".join(text(part) or _part_text(part) for part in content)
    return text(content)


def arguments_text(value: Any) -> str:
    """A tool call's arguments as JSON text, also where a server sends an object or nothing."""
    if value is None or value == "":
        return "{}"
    return clean_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _part_text(part: Any) -> str:
    found = mapping(part)
    return text(found.get("text")) if found.get("type") in ("text", "output_text", None) else ""


def no_json(constant: str) -> None:
    """For ``json.loads(parse_constant=…)``: NaN and Infinity are no JSON."""
    raise ValueError(f"{constant} is not JSON")
