"""The Chat Completions wire, as OpenAI and the servers compatible with it speak it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from agentturns.providers.base import (
    AssistantMessage,
    ModelReply,
    ModelRequest,
    ToolRequest,
    ToolResults,
    Usage,
    UserMessage,
)
from agentturns.providers.faults import Endpoint, cut_off, error_inside, malformed
from agentturns.providers.reading import (
    Said,
    arguments_text,
    count,
    joined_text,
    load_reply,
    mapping,
    mappings,
    text,
)
from agentturns.providers.replay import NO_OUTPUT, fits, foreign_name, replayed_text, stored

FLAVOUR: Final = "chat"
MESSAGE_KEYS: Final = ("role", "reasoning_content", "reasoning", "content", "refusal", "tool_calls")
CALL_KEYS: Final = ("id", "type", "function")
# Ends that a server reaches by itself. Any other (length, content_filter, one not heard of) may hide a missing part.
WHOLE: Final = ("stop", "tool_calls", "end_turn", "eos", "stop_sequence")


def render(request: ModelRequest) -> dict[str, Any]:
    """The request's JSON body."""
    options = request.options
    system = [{"role": "system", "content": request.instructions}] if request.instructions else []
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [*system, *(sent for message in request.messages for sent in _messages(message))],
    }
    if request.tools:
        body["tools"] = [{"type": "function", "function": dict(tool)} for tool in request.tools]
    if request.max_output_tokens is not None:
        body[options.get("max_tokens_field", "max_completion_tokens")] = request.max_output_tokens
    if options.get("reasoning_effort"):
        body["reasoning_effort"] = options["reasoning_effort"]
    if options.get("service_tier"):
        body["service_tier"] = options["service_tier"]
    if request.cache_key and options.get("prompt_cache_key"):
        body["prompt_cache_key"] = request.cache_key
    if options.get("stream"):
        # Without being asked, this wire tells no usage in a stream.
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return {**body, **options.get("extra", {})}


def _messages(message: UserMessage | AssistantMessage | ToolResults) -> Iterator[dict[str, Any]]:
    match message:
        case UserMessage():
            if message.text:
                yield {"role": "user", "content": message.text}
        case AssistantMessage():
            sent = _replay(message) or _translate(message)
            # A server refuses an assistant that says nothing, and nothing is lost without it.
            if sent.keys() - {"role"}:
                yield sent
        case ToolResults():
            for result in message.results:
                yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text or NO_OUTPUT}
            if message.notice:
                yield {"role": "user", "content": message.notice}


def _replay(message: AssistantMessage) -> dict[str, Any]:
    """The stored message, empty where it is not of this wire or not of this conversation."""
    if message.flavour != FLAVOUR:
        return {}
    choices = mappings(mapping(stored(message.wire)).get("choices"))
    sent = {key: value for key, value in mapping(choices[0].get("message")).items() if not _is_empty(value)}
    calls = mappings(sent.get("tool_calls"))
    if not fits(calls, message.tool_calls):
        return {}
    if calls:
        sent["tool_calls"] = [_replay_call(*pair) for pair in zip(calls, message.tool_calls, strict=True)]
    return _in_order(sent, MESSAGE_KEYS)


def _replay_call(call: dict[str, Any], request: ToolRequest) -> dict[str, Any]:
    function = mapping(call.get("function"))
    told = {**function, "arguments": replayed_text(function.get("arguments"))}
    # Its place in the list is of the stream, and only some servers leave it in a whole reply.
    more = {key: value for key, value in call.items() if key != "index" and value is not None}
    return _in_order({"type": "function", **more, "id": request.call_id, "function": told}, CALL_KEYS)


def _in_order(said: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """``said`` with its keys in one order: they come in another order in a stream than in a whole reply."""
    keys = [*(key for key in known if key in said), *sorted(said.keys() - set(known))]
    return {key: said[key] for key in keys}


def _is_empty(value: Any) -> bool:
    """Whether a key says nothing: servers that write such keys refuse to read them."""
    return value is None or value in ("", [], {})


def _translate(message: AssistantMessage) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": "assistant"}
    if message.text:
        sent["content"] = message.text
    if message.tool_calls:
        sent["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": foreign_name(call.name), "arguments": replayed_text(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return sent


def parse(wire: str, endpoint: Endpoint) -> ModelReply:
    """Read a stored or fresh reply. Raises ``ProviderError`` when it is no usable reply."""
    reply = load_reply(endpoint, wire)
    choices = mappings(reply.get("choices"))
    if not choices or not isinstance(choices[0].get("message"), dict):
        raise malformed(endpoint, "has no choices")
    choice, message = choices[0], choices[0]["message"]
    if choice.get("error"):
        raise error_inside(endpoint, choice["error"])
    stop_reason = text(choice.get("finish_reason"))
    if not stop_reason:
        raise cut_off(endpoint)
    refusal = text(message.get("refusal"))
    said = Said(text=joined_text(message.get("content")) or refusal)
    said.thoughts = [thought for key in ("reasoning_content", "reasoning") if (thought := text(message.get(key)))][:1]
    said.calls = [_call(call) for call in mappings(message.get("tool_calls"))]
    return ModelReply(
        wire=wire,
        text=said.text,
        tool_calls=tuple(said.calls),
        stop_reason="refusal" if refusal and stop_reason in WHOLE else stop_reason,
        complete=stop_reason in WHOLE and not refusal,
        usage=usage_of(mapping(reply.get("usage"))),
        model=text(reply.get("model")),
        request_id=text(reply.get("id")),
        output=said.blocks(),
        price_context={"service_tier": tier} if (tier := text(reply.get("service_tier"))) else {},
    )


def _call(call: dict[str, Any]) -> ToolRequest:
    function = mapping(call.get("function"))
    return ToolRequest(text(call.get("id")), text(function.get("name")), arguments_text(function.get("arguments")))


def usage_of(usage: dict[str, Any]) -> Usage:
    """A reply's usage object, None for what it leaves out."""
    read, written = mapping(usage.get("prompt_tokens_details")), mapping(usage.get("completion_tokens_details"))
    return Usage(
        input_tokens=count(usage.get("prompt_tokens")),
        cached_input_tokens=count(read.get("cached_tokens")),
        cache_write_tokens=count(read.get("cache_write_tokens")),
        output_tokens=count(usage.get("completion_tokens")),
        reasoning_tokens=count(written.get("reasoning_tokens")),
    )
