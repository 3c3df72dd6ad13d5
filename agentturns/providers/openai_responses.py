"""OpenAI's Responses wire, stateless: every output item is sent back as it came, in its place."""

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
from agentturns.providers.reading import Said, arguments_text, count, load_reply, mapping, mappings, text
from agentturns.providers.replay import NO_OUTPUT, fits, foreign_name, replayed_text, stored

FLAVOUR: Final = "responses"
# These know no reasoning, and refuse to be asked for its encrypted form.
WITHOUT_REASONING: Final = ("gpt-3", "gpt-4", "chatgpt-4")


def render(request: ModelRequest) -> dict[str, Any]:
    """The request's JSON body."""
    options = request.options
    body: dict[str, Any] = {"model": request.model}
    if request.instructions:
        body["instructions"] = request.instructions
    body["input"] = [item for message in request.messages for item in _items(message)]
    if request.tools:
        # Without "strict" the wire assumes strict schemas, which those of ordinary functions are not.
        body["tools"] = [{"type": "function", **tool, "strict": False} for tool in request.tools]
    body["store"] = False
    if not request.model.startswith(WITHOUT_REASONING):
        body["include"] = ["reasoning.encrypted_content"]
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = request.max_output_tokens
    if options.get("reasoning_effort"):
        body["reasoning"] = {"effort": options["reasoning_effort"]}
    if options.get("service_tier"):
        body["service_tier"] = options["service_tier"]
    if request.cache_key and options.get("prompt_cache_key"):
        body["prompt_cache_key"] = request.cache_key
    if options.get("stream"):
        body["stream"] = True
    return {**body, **options.get("extra", {})}


def _items(message: UserMessage | AssistantMessage | ToolResults) -> Iterator[dict[str, Any]]:
    match message:
        case UserMessage():
            if message.text:
                yield {"role": "user", "content": message.text}
        case AssistantMessage():
            yield from _replay(message) or _translate(message)
        case ToolResults():
            for result in message.results:
                yield {
                    "type": "function_call_output",
                    "call_id": result.call_id,
                    "output": result.text or NO_OUTPUT,
                }
            if message.notice:
                yield {"role": "user", "content": message.notice}


def _replay(message: AssistantMessage) -> list[dict[str, Any]]:
    """The stored items, nothing where they are not of this wire or not of this conversation."""
    if message.flavour != FLAVOUR:
        return []
    items = mappings(mapping(stored(message.wire)).get("output"))
    calls = [item for item in items if item.get("type") == "function_call"]
    if not fits(calls, message.tool_calls):
        return []
    for item, request in zip(calls, message.tool_calls, strict=True):
        item["call_id"] = request.call_id
        item["arguments"] = replayed_text(item.get("arguments"))
    return items


def _translate(message: AssistantMessage) -> Iterator[dict[str, Any]]:
    if message.text:
        yield {"role": "assistant", "content": message.text}
    for call in message.tool_calls:
        yield {
            "type": "function_call",
            "call_id": call.call_id,
            "name": foreign_name(call.name),
            "arguments": replayed_text(call.arguments),
        }


def parse(wire: str, endpoint: Endpoint) -> ModelReply:
    """Read a stored or fresh reply. Raises ``ProviderError`` when it is no usable reply."""
    reply = load_reply(endpoint, wire)
    if not isinstance(reply.get("output"), list):
        raise malformed(endpoint, "has no output")
    stop_reason = _stop_reason(reply, endpoint)
    said, refusal = _read(mappings(reply["output"]))
    said.text = said.text or refusal
    return ModelReply(
        wire=wire,
        text=said.text,
        tool_calls=tuple(said.calls),
        stop_reason="refusal" if refusal and stop_reason == "completed" else stop_reason,
        complete=stop_reason == "completed" and not refusal,
        usage=usage_of(mapping(reply.get("usage"))),
        model=text(reply.get("model")),
        request_id=text(reply.get("id")),
        output=said.blocks(),
        price_context={"service_tier": tier} if (tier := text(reply.get("service_tier"))) else {},
    )


def _stop_reason(reply: dict[str, Any], endpoint: Endpoint) -> str:
    """Why the reply ended; a failure comes as HTTP 200 like any other reply, and only the status tells."""
    match reply.get("status"):
        case "completed":
            return "completed"
        case "incomplete":
            return text(mapping(reply.get("incomplete_details")).get("reason")) or "incomplete"
        case None:
            raise cut_off(endpoint)
        case status:
            raise error_inside(endpoint, {"message": f"the status is {status!r}", "code": "server_error"})


def _read(items: list[dict[str, Any]]) -> tuple[Said, str]:
    """What the items say, and the text of a refusal."""
    said, refusal = Said(), ""
    messages: list[tuple[str, str]] = []
    for item in items:
        match item.get("type"):
            case "message":
                parts = mappings(item.get("content"))
                spoken = "".join(text(part.get("text")) for part in parts if part.get("type") == "output_text")
                refusal += "".join(text(part.get("refusal")) for part in parts)
                messages.append((text(item.get("phase")), spoken))
            case "function_call":
                call_id, name = text(item.get("call_id")), text(item.get("name"))
                said.calls.append(ToolRequest(call_id, name, arguments_text(item.get("arguments"))))
            case "reasoning":
                parts = mappings(item.get("summary")) or mappings(item.get("content"))
                said.thoughts += [thought for part in parts if (thought := text(part.get("text")))]
    # What a model says on its way to an answer is no part of the answer.
    final = [spoken for phase, spoken in messages if phase == "final_answer" and spoken]
    said.text = "\n\n".join(final or [spoken for _, spoken in messages if spoken])
    return said, refusal


def usage_of(usage: dict[str, Any]) -> Usage:
    """A reply's usage object, None for what it leaves out."""
    read, written = mapping(usage.get("input_tokens_details")), mapping(usage.get("output_tokens_details"))
    return Usage(
        input_tokens=count(usage.get("input_tokens")),
        cached_input_tokens=count(read.get("cached_tokens")),
        cache_write_tokens=count(read.get("cache_write_tokens")),
        output_tokens=count(usage.get("output_tokens")),
        reasoning_tokens=count(written.get("reasoning_tokens")),
    )
