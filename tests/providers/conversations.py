"""Requests, replies and conversations that the tests of all wires speak about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agentturns.providers.base import (
    AssistantMessage,
    Message,
    ModelReply,
    ModelRequest,
    Provider,
    ToolResult,
    ToolResults,
    UserMessage,
)

HELLO = UserMessage("Where is order 7?")
PARAMETERS = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}
LOOK_UP = {"name": "look_up", "description": "Looks an order up.", "parameters": PARAMETERS}


def asked(
    provider: Provider, messages: Sequence[Message] = (HELLO,), *, model: str = "some-model", **fields: Any
) -> ModelRequest:
    """A request as the engine makes one for this provider."""
    options = {**provider.request_options(), **fields.pop("options", {})}
    return ModelRequest(
        model=model,
        flavour=fields.pop("flavour", provider.flavour),
        instructions=fields.pop("instructions", "Be brief."),
        tools=fields.pop("tools", [LOOK_UP]),
        messages=messages,
        options=options,
        **fields,
    )


def replayed(reply: ModelReply, flavour: str, ids: Sequence[str] | None = None) -> AssistantMessage:
    """A reply as the engine puts it into the next request, its calls under ``ids`` where these are given."""
    calls = reply.tool_calls
    if ids is not None:
        calls = tuple(type(call)(call_id, call.name, call.arguments) for call, call_id in zip(calls, ids, strict=True))
    return AssistantMessage(reply.wire, flavour, reply.text, calls)


def results(message: AssistantMessage, *texts: str, notice: str = "", failed: bool = False) -> ToolResults:
    """What the calls of ``message`` gave, one text each."""
    return ToolResults(
        tuple(
            ToolResult(call.call_id, call.name, text, failed)
            for call, text in zip(message.tool_calls, texts, strict=True)
        ),
        notice,
    )


def dumped(value: Any) -> str:
    """JSON that shows keys in their order: two such texts are equal when the requests are equal bytes."""
    return json.dumps(value, ensure_ascii=False)


def without_marks(value: Any) -> Any:
    """A request, or a part of one, without the marks for a vendor's cache."""
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return [without_marks(item) for item in value] if isinstance(value, list) else value
