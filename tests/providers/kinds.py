"""Whole replies of every kind that the three wires know, as their vendors write them."""

from __future__ import annotations

from typing import Any

Reply = dict[str, Any]

LOOK = {"order": 7, "note": "größer ☂ 🙂", "empty": {}}
LOOK_TEXT = '{"order": 7, "note": "größer ☂ 🙂", "empty": {}}'


def response(*output: Reply, **changes: Any) -> Reply:
    """A reply on the Responses wire."""
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-5-mini-2025-08-07",
        "output": list(output),
        "service_tier": "default",
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 40},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 15},
        },
        **changes,
    }


REASONING = {"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAAA==", "summary": [], "odd": {"b": None}}


def call_item(arguments: str = LOOK_TEXT, **changes: Any) -> Reply:
    return {
        "id": "fc_1",
        "type": "function_call",
        "status": "completed",
        "arguments": arguments,
        "call_id": "call_a",
        "name": "look_up",
        **changes,
    }


def said_item(text: str, kind: str = "output_text", **changes: Any) -> Reply:
    key = "refusal" if kind == "refusal" else "text"
    part = {"type": kind, key: text, **({} if kind == "refusal" else {"annotations": []})}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
        **changes,
    }


RESPONSES: dict[str, Reply] = {
    "call": response(call_item()),
    "reasoning and two calls": response(REASONING, said_item("Let me look. 🙂"), call_item(), call_item(call_id="b")),
    "phases": response(REASONING, said_item("Looking…", phase="commentary"), call_item()),
    "broken arguments": response(call_item('{"order": ')),
    "repeated and missing ids": response(call_item(), call_item(), call_item(call_id="")),
    "an item not heard of": response({"type": "an_item_of_next_year", "b": None, "a": [1.5, "é"]}, call_item()),
    "text": response(REASONING, said_item("It left.", phase="final_answer")),
    "refusal": response(said_item("I cannot.", "refusal")),
    "cut": response(said_item("It l"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    "cut in a call": response(call_item('{"ord'), status="incomplete", incomplete_details={"reason": "content_filter"}),
}


def completion(message: Reply, finish_reason: str = "stop", **changes: Any) -> Reply:
    """A reply on the Chat Completions wire."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "qwen3",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20},
        **changes,
    }


def chat_call(arguments: Any = LOOK_TEXT, call_id: Any = "call_a") -> Reply:
    return {"id": call_id, "type": "function", "function": {"name": "look_up", "arguments": arguments}}


CHAT: dict[str, Reply] = {
    "call": completion({"content": None, "refusal": None, "tool_calls": [chat_call()]}, "tool_calls"),
    "thoughts and two calls": completion(
        {"content": "Let me look. 🙂", "tool_calls": [chat_call(), chat_call(call_id="b")], "reasoning_content": "Hm."},
        "tool_calls",
    ),
    "calls with the ordinary stop": completion({"content": "", "tool_calls": [chat_call()]}),
    "broken arguments": completion({"tool_calls": [chat_call('{"order": ')]}, "tool_calls"),
    "no arguments": completion({"tool_calls": [chat_call("")]}, "tool_calls"),
    "text": completion({"content": "It left."}),
    "refusal": completion({"content": None, "refusal": "I cannot."}),
    "cut": completion({"content": "It l"}, "length"),
}


def message(*content: Reply, stop_reason: str = "tool_use", **changes: Any) -> Reply:
    """A reply on Anthropic's Messages wire."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 50,
            "cache_creation_input_tokens": 10,
            "cache_read_input_tokens": 40,
            "output_tokens": 20,
        },
        **changes,
    }


THINKING = {"type": "thinking", "thinking": "Need the order. 🙂", "signature": "EqQBCg=="}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgB"}


def use_block(call_id: str = "toolu_a", **changes: Any) -> Reply:
    return {"type": "tool_use", "id": call_id, "name": "look_up", "input": LOOK, **changes}


def text_block(text: str, **changes: Any) -> Reply:
    return {"type": "text", "text": text, **changes}


MESSAGES: dict[str, Reply] = {
    "call": message(use_block()),
    "thinking and two calls": message(THINKING, text_block("Let me look. 🙂"), use_block(), use_block("toolu_b")),
    "redacted thinking": message(REDACTED, use_block(caller={"type": "direct"})),
    "unsigned thinking": message({**THINKING, "signature": ""}, use_block()),
    "no input": message(use_block(input={})),
    "a block not heard of": message({"type": "a_block_of_next_year", "b": None, "a": [1.5, "é"]}, use_block()),
    "an empty text": message(text_block(""), use_block()),
    "text": message(THINKING, text_block("It left."), stop_reason="end_turn"),
    "refusal": message(text_block("I cannot."), stop_reason="refusal"),
    "cut": message(text_block("It l"), stop_reason="max_tokens"),
    "paused": message(text_block("Wait."), stop_reason="pause_turn"),
    "a stop reason not heard of": message(text_block("So."), stop_reason="next_year"),
}

KINDS: dict[str, dict[str, Reply]] = {"responses": RESPONSES, "chat": CHAT, "messages": MESSAGES}
ALL = [(flavour, kind) for flavour, replies in KINDS.items() for kind in replies]
IDS = [f"{flavour}: {kind}" for flavour, kind in ALL]
