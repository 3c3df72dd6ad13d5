"""Anthropic's Messages wire: every block is sent back as it came, in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from agentturns.providers.anthropic_cache import mark
from agentturns.providers.base import (
    AssistantMessage,
    Message,
    ModelReply,
    ModelRequest,
    ToolRequest,
    ToolResult,
    ToolResults,
    Usage,
    UserMessage,
)
from agentturns.providers.faults import Endpoint, cut_off, malformed
from agentturns.providers.reading import Said, arguments_text, count, load_reply, mapping, mappings, text
from agentturns.providers.replay import NO_OUTPUT, fit_id, fits, foreign_name, replayed_arguments, stored

FLAVOUR: Final = "messages"
DEFAULT_MAX_TOKENS: Final = 8192
# Ends at which a reply without calls is whole. Not among them: max_tokens, refusal, model_context_window_exceeded,
# pause_turn (it asks to be continued, which only tools that run at the vendor need, and those are not declared here),
# and whatever comes to exist.
WHOLE: Final = ("end_turn", "stop_sequence")


def output_limit(request: ModelRequest) -> int:
    """The limit on the reply's tokens, which this wire cannot do without."""
    return request.max_output_tokens or int(request.options.get("max_tokens", DEFAULT_MAX_TOKENS))


def render(request: ModelRequest) -> dict[str, Any]:
    """The request's JSON body."""
    body: dict[str, Any] = {"model": request.model, "max_tokens": output_limit(request)}
    if request.instructions:
        body["system"] = [{"type": "text", "text": request.instructions}]
    if request.tools:
        body["tools"] = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
            for tool in request.tools
        ]
    body["messages"], earlier = _messages(request.messages)
    if request.options.get("prompt_caching"):
        mark(body, earlier)
    if request.options.get("stream"):
        body["stream"] = True
    return {**body, **request.options.get("extra", {})}


def _messages(messages: Sequence[Message]) -> tuple[list[dict[str, Any]], int]:
    """The conversation with roles in turn: what the user's side says in a row is one message, results first.

    With it, how many blocks the request before this one had: those before the last reply.
    """
    sent: list[dict[str, Any]] = []
    earlier = 0
    for message in messages:
        match message:
            case AssistantMessage():
                earlier = sum(len(one["content"]) for one in sent)
                role, blocks = "assistant", _replay(message) or _translate(message)
            case ToolResults():
                role, blocks = "user", _results(message)
            case UserMessage():
                role, blocks = "user", [{"type": "text", "text": message.text}] if message.text else []
        if not blocks:
            continue
        if sent and sent[-1]["role"] == role:
            sent[-1]["content"] += blocks
        else:
            sent.append({"role": role, "content": blocks})
    return sent, earlier


def _results(message: ToolResults) -> list[dict[str, Any]]:
    blocks = [_result(result) for result in message.results]
    if message.notice:
        notice = {"type": "text", "text": message.notice}
        # Beside the results, a text makes the model end its turn with an empty reply; inside the last, it is read.
        if blocks:
            blocks[-1]["content"].append(notice)
        else:
            blocks.append(notice)
    return blocks


def _result(result: ToolResult) -> dict[str, Any]:
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": fit_id(result.call_id),
        "content": [{"type": "text", "text": result.text or NO_OUTPUT}],
    }
    if result.is_error:
        block["is_error"] = True
    return block


def _replay(message: AssistantMessage) -> list[dict[str, Any]]:
    """The stored blocks, nothing where they are not of this wire or not of this conversation."""
    if message.flavour != FLAVOUR:
        return []
    blocks = [block for block in mappings(mapping(stored(message.wire)).get("content")) if _is_accepted(block)]
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    if not fits(calls, message.tool_calls):
        return []
    for block, request in zip(calls, message.tool_calls, strict=True):
        block["id"] = fit_id(request.call_id)
        if not isinstance(block.get("input"), dict):
            block["input"] = {}
    return blocks


def _is_accepted(block: dict[str, Any]) -> bool:
    """Whether the vendor takes its block back: not an empty text, nor a thought without its signature."""
    match block.get("type"):
        case "text":
            return bool(text(block.get("text")).strip())
        case "thinking":
            return bool(block.get("signature"))
    return True


def _translate(message: AssistantMessage) -> list[dict[str, Any]]:
    spoken = [{"type": "text", "text": message.text}] if message.text.strip() else []
    return [
        *spoken,
        *(
            {
                "type": "tool_use",
                "id": fit_id(call.call_id),
                "name": foreign_name(call.name),
                "input": replayed_arguments(call.arguments),
            }
            for call in message.tool_calls
        ),
    ]


def parse(wire: str, endpoint: Endpoint) -> ModelReply:
    """Read a stored or fresh reply. Raises ``ProviderError`` when it is no usable reply."""
    reply = load_reply(endpoint, wire)
    if not isinstance(reply.get("content"), list):
        raise malformed(endpoint, "has no content")
    stop_reason = text(reply.get("stop_reason"))
    if not stop_reason:
        raise cut_off(endpoint)
    said = Said()
    for block in mappings(reply["content"]):
        match block.get("type"):
            case "text":
                said.text += text(block.get("text"))
            case "thinking":
                said.thoughts += [thought] if (thought := text(block.get("thinking"))) else []
            case "tool_use":
                call_id, name = text(block.get("id")), text(block.get("name"))
                said.calls.append(ToolRequest(call_id, name, arguments_text(block.get("input"))))
    usage = mapping(reply.get("usage"))
    return ModelReply(
        wire=wire,
        text=said.text,
        tool_calls=tuple(said.calls),
        stop_reason=stop_reason,
        # A reply that was cut parses into arguments that look valid, so calls run for tool_use and nothing else.
        complete=stop_reason == "tool_use" or (stop_reason in WHOLE and not said.calls),
        usage=usage_of(usage),
        model=text(reply.get("model")),
        request_id=text(reply.get("id")),
        output=said.blocks(),
        price_context={name: value for name in ("service_tier", "speed") if (value := text(usage.get(name)))},
    )


def usage_of(usage: dict[str, Any]) -> Usage:
    """A reply's usage object, the vendor's parts made one whole: it counts cached and written input beside the rest."""
    fresh = count(usage.get("input_tokens"))
    read, written = count(usage.get("cache_read_input_tokens")), count(usage.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        cached_input_tokens=read,
        cache_write_tokens=written,
        output_tokens=count(usage.get("output_tokens")),
        reasoning_tokens=count(mapping(usage.get("output_tokens_details")).get("thinking_tokens")),
        cache_write_1h_tokens=count(mapping(usage.get("cache_creation")).get("ephemeral_1h_input_tokens")),
    )
