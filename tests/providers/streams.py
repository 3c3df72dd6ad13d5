"""Whole replies as their vendors stream them: the same reply, event by event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

PIECE = 5


def as_stream(flavour: str, reply: dict[str, Any], piece: int = PIECE) -> str:
    """The event stream of ``reply``, its texts cut into pieces of so many characters."""
    return "".join(WRITERS[flavour](reply, piece))


def event(data: Any, name: str = "") -> str:
    """One server-sent event. JSON is escaped, so that a character outside the basic plane is two escapes."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


def pieces(text: str, size: int) -> list[str]:
    """``text`` cut without regard to its characters: one that takes two units of UTF-16 may be cut in half."""
    units = text.encode("utf-16-le")
    return [
        units[start : start + 2 * size].decode("utf-16-le", "surrogatepass") for start in range(0, len(units), 2 * size)
    ]


def _responses(reply: dict[str, Any], size: int) -> Iterator[str]:
    begun = {**reply, "status": "in_progress", "output": [], "usage": None}
    yield event({"type": "response.created", "response": begun}, "response.created")
    for index, item in enumerate(reply["output"]):
        yield event({"type": "response.output_item.added", "output_index": index, "item": {"type": item["type"]}})
        for part in item.get("content") or []:
            kind = "refusal" if part["type"] == "refusal" else "output_text"
            for piece in pieces(part.get("text") or part.get("refusal") or "", size):
                yield event({"type": f"response.{kind}.delta", "output_index": index, "delta": piece})
        for piece in pieces(item.get("arguments") or "", size):
            yield event({"type": "response.function_call_arguments.delta", "output_index": index, "delta": piece})
        yield event({"type": "response.output_item.done", "output_index": index, "item": item})
    last = f"response.{reply['status']}"
    yield event({"type": last, "response": reply}, last)


def _chat(reply: dict[str, Any], size: int) -> Iterator[str]:
    head = {key: value for key, value in reply.items() if key not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return event({**head, "choices": [choice], "usage": None})

    (choice,) = reply["choices"]
    said = choice["message"]
    yield chunk({"role": "assistant", "content": None if said.get("content") is None else "", "refusal": None})
    for key in ("reasoning_content", "content", "refusal"):
        for piece in pieces(said.get(key) or "", size):
            yield chunk({key: piece})
    for index, call in enumerate(said.get("tool_calls") or []):
        function = call["function"]
        first = {"index": index, **call, "function": {**function, "arguments": ""}}
        yield chunk({"tool_calls": [first]})
        for piece in pieces(function["arguments"], size):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    yield event({**head, "choices": [], "usage": reply["usage"]})
    yield event("[DONE]")


def _messages(reply: dict[str, Any], size: int) -> Iterator[str]:
    usage = {**reply["usage"], "output_tokens": 1}
    begun = {**reply, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield event({"type": "message_start", "message": begun}, "message_start")
    yield event({"type": "ping"}, "ping")
    for index, block in enumerate(reply["content"]):
        begun_block, deltas = _block(block, size)
        yield event({"type": "content_block_start", "index": index, "content_block": begun_block})
        for delta in deltas:
            yield event({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
        yield event({"type": "content_block_stop", "index": index})
    ends = {key: reply[key] for key in ("stop_reason", "stop_sequence")}
    yield event(
        {"type": "message_delta", "delta": ends, "usage": {"output_tokens": reply["usage"].get("output_tokens")}}
    )
    yield event({"type": "message_stop"}, "message_stop")


def _block(block: dict[str, Any], size: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [
                {"type": "text_delta", "text": piece} for piece in pieces(block["text"], size)
            ]
        case "thinking":
            thoughts = pieces(block["thinking"], size)
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in thoughts]
            signed = [{"type": "signature_delta", "signature": block["signature"]}] if block["signature"] else []
            return {**block, "thinking": "", "signature": ""}, [*deltas, *signed]
        case "tool_use":
            written = json.dumps(block["input"], ensure_ascii=False) if block["input"] else ""
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces(written, size)]]
            return {**block, "input": {}}, deltas
    return block, []


WRITERS = {"responses": _responses, "chat": _chat, "messages": _messages}
