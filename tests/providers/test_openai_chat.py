"""The Chat Completions wire, with the liberties that compatible servers take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentturns.providers.base import AssistantMessage, Fault, ProviderError, ToolRequest, Usage, UserMessage
from agentturns.providers.openai import OpenAI
from tests.providers.conversations import HELLO, LOOK_UP, asked, dumped, replayed, results

CALL = {"id": "call_a", "type": "function", "function": {"name": "look_up", "arguments": '{ "order":7 }'}}
OTHER_CALL = {**CALL, "id": "call_b"}
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 10},
    "completion_tokens_details": {"reasoning_tokens": 15},
}


def wire(message: Any, finish_reason: Any = "stop", **changes: Any) -> str:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return json.dumps({"id": "chatcmpl-1", "model": "qwen3", "choices": [choice], "usage": USAGE, **changes})


def says(content: Any, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **more}


@pytest.fixture
def chat() -> OpenAI:
    return OpenAI("local", api="chat", base_url="http://127.0.0.1:1/v1", api_key="any-text")


def sent_again(chat: OpenAI, message: Any, *texts: str, ids: list[str] | None = None) -> list[dict[str, Any]]:
    """The messages after the first user message, when ``message`` is replayed and its calls gave ``texts``."""
    said = replayed(chat.parse(wire(message), "chat"), "chat", ids)
    conversation = [HELLO, said, results(said, *texts)] if texts else [HELLO, said]
    return list(chat.render(asked(chat, conversation, instructions=""))["messages"][1:])


def test_a_first_request(chat: OpenAI) -> None:
    assert chat.render(asked(chat, model="qwen3", max_output_tokens=500, cache_key="session-1")) == {
        "model": "qwen3",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Where is order 7?"},
        ],
        "tools": [{"type": "function", "function": LOOK_UP}],
        "max_tokens": 500,
    }


def test_openai_itself_gets_the_name_it_wants_for_the_limit() -> None:
    official = OpenAI("openai", api="chat", reasoning_effort="low", service_tier="flex")
    body = official.render(asked(official, max_output_tokens=500, cache_key="session-1"))
    assert body["max_completion_tokens"] == 500 and "max_tokens" not in body
    assert (body["reasoning_effort"], body["service_tier"], body["prompt_cache_key"]) == ("low", "flex", "session-1")


def test_a_message_is_sent_again_as_it_came_with_its_results_and_the_notice_after_them(chat: OpenAI) -> None:
    message = {"role": "assistant", "reasoning_content": "Hm.", **says("Let me look.", CALL, OTHER_CALL)}
    said = replayed(chat.parse(wire(message, "tool_calls"), "chat"), "chat")
    conversation = [HELLO, said, results(said, "on its way", "lost", notice="2 left.")]
    assert dumped(chat.render(asked(chat, conversation))["messages"][2:]) == dumped(
        [
            message,
            {"role": "tool", "tool_call_id": "call_a", "content": "on its way"},
            {"role": "tool", "tool_call_id": "call_b", "content": "lost"},
            {"role": "user", "content": "2 left."},
        ]
    )


def test_keys_that_say_nothing_are_not_sent_back(chat: OpenAI) -> None:
    message = says(None, CALL, refusal=None, annotations=[], audio=None, function_call=None)
    assert sent_again(chat, message, "ok")[0] == {"role": "assistant", "tool_calls": [CALL]}


@pytest.mark.parametrize("content", ["", None, []])
def test_an_empty_answer_is_left_out_of_the_next_request(chat: OpenAI, content: Any) -> None:
    assert sent_again(chat, says(content)) == []


def test_an_empty_result_says_so(chat: OpenAI) -> None:
    assert sent_again(chat, says(None, CALL), "")[1]["content"] == "(no output)"


def test_a_reply_is_read(chat: OpenAI) -> None:
    reply = chat.parse(wire(says("Let me look.", CALL), "tool_calls"), "chat")
    assert (reply.text, reply.stop_reason, reply.complete) == ("Let me look.", "tool_calls", True)
    assert reply.tool_calls == (ToolRequest("call_a", "look_up", '{ "order":7 }'),)
    assert (reply.model, reply.request_id) == ("qwen3", "chatcmpl-1")
    assert reply.usage == Usage(100, 40, 10, 20, 15)


def test_usage_without_details_leaves_the_parts_unknown(chat: OpenAI) -> None:
    few = {"prompt_tokens": 100, "completion_tokens": 20}
    assert chat.parse(wire(says("hi"), usage=few), "chat").usage == Usage(input_tokens=100, output_tokens=20)
    assert chat.parse(wire(says("hi"), usage=None), "chat").usage == Usage()


def test_calls_that_come_with_the_ordinary_stop_may_run(chat: OpenAI) -> None:
    reply = chat.parse(wire(says(None, CALL), "stop"), "chat")
    assert reply.complete and len(reply.tool_calls) == 1


@pytest.mark.parametrize("reason", ["length", "content_filter", "not_heard_of"])
def test_a_cut_reply_is_not_complete(chat: OpenAI, reason: str) -> None:
    reply = chat.parse(wire(says(None, CALL), reason), "chat")
    assert (reply.stop_reason, reply.complete) == (reason, False)


def test_a_refusal_is_told_and_is_not_complete(chat: OpenAI) -> None:
    reply = chat.parse(wire(says(None, refusal="I cannot help with that.")), "chat")
    assert (reply.text, reply.stop_reason, reply.complete) == ("I cannot help with that.", "refusal", False)


@pytest.mark.parametrize("finish_reason", [None, ""])
def test_a_reply_without_a_finish_reason_may_be_cut(chat: OpenAI, finish_reason: Any) -> None:
    with pytest.raises(ProviderError, match="without a reason for its end") as raised:
        chat.parse(wire(says("half an ans"), finish_reason), "chat")
    assert (raised.value.fault, raised.value.billed) == (Fault.TRANSIENT, True)


@pytest.mark.parametrize("choices", [[], None, [{}], ["x"], [{"message": None, "finish_reason": "stop"}]])
def test_a_reply_without_a_message_is_a_fault(chat: OpenAI, choices: Any) -> None:
    with pytest.raises(ProviderError, match="a reply that has no choices") as raised:
        chat.parse(wire(None, choices=choices), "chat")
    assert (raised.value.fault, raised.value.billed) == (Fault.TRANSIENT, True)


ERRORS = {
    "by number": ({"code": 429, "message": "Slow down."}, Fault.RATE_LIMITED),
    "by another number": ({"code": 402, "message": "Out of credits."}, Fault.SPEND_LIMIT),
    "by name": ({"type": "overloaded_error", "message": "Busy."}, Fault.TRANSIENT),
    "in words": ("model 'x' is loading", Fault.TRANSIENT),
}


@pytest.mark.parametrize(("error", "fault"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_in_the_place_of_a_reply_is_classified_by_its_content(chat: OpenAI, error: Any, fault: Fault) -> None:
    with pytest.raises(ProviderError) as raised:
        chat.parse(json.dumps({"error": error}), "chat")
    assert raised.value.fault == fault


def test_an_error_inside_a_choice_is_a_fault(chat: OpenAI) -> None:
    choice = {"message": says("half"), "finish_reason": "error", "error": {"code": 502, "message": "Upstream."}}
    with pytest.raises(ProviderError, match="Upstream") as raised:
        chat.parse(wire(None, choices=[choice]), "chat")
    assert (raised.value.fault, raised.value.billed) == (Fault.TRANSIENT, True)


def call_with(arguments: Any) -> dict[str, Any]:
    return {**CALL, "function": {"name": "look_up", "arguments": arguments}}


ARGUMENTS = {
    "invalid JSON": ('{"order": ', '{"order": ', "{}"),
    "no object": ("[7]", "[7]", "{}"),
    "nothing": ("", "{}", "{}"),
    "null": (None, "{}", "{}"),
    "an object": ({"order": 7}, '{"order": 7}', '{"order":7}'),
    "spaced JSON": ('{ "order":7 }', '{ "order":7 }', '{ "order":7 }'),
    "NaN": ('{"order": NaN}', '{"order": NaN}', "{}"),
}


@pytest.mark.parametrize(("came", "read", "sent"), ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_arguments_are_kept_as_written_and_sent_again_as_valid_json(
    chat: OpenAI, came: Any, read: str, sent: str
) -> None:
    reply = chat.parse(wire(says(None, call_with(came))), "chat")
    assert reply.tool_calls[0].arguments == read
    assert sent_again(chat, says(None, call_with(came)), "ok")[0]["tool_calls"][0]["function"]["arguments"] == sent


def test_the_conversations_own_ids_win_over_repeated_and_missing_ones(chat: OpenAI) -> None:
    nameless = {"function": {"name": "look_up", "arguments": "{}"}}
    message = says(None, CALL, CALL, nameless)
    assert [call.call_id for call in chat.parse(wire(message), "chat").tool_calls] == ["call_a", "call_a", ""]
    first, *answers = sent_again(chat, message, "1", "2", "3", ids=["call_a", "call_1_1_1", "call_1_1_2"])
    assert [call["id"] for call in first["tool_calls"]] == ["call_a", "call_1_1_1", "call_1_1_2"]
    assert [call["type"] for call in first["tool_calls"]] == ["function"] * 3
    assert [one["tool_call_id"] for one in answers] == ["call_a", "call_1_1_1", "call_1_1_2"]


def test_content_that_is_a_list_is_read_and_sent_again_as_it_is(chat: OpenAI) -> None:
    parts = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "It "},
        {"type": "text", "text": "left."},
    ]
    assert chat.parse(wire(says(parts)), "chat").text == "It left."
    assert sent_again(chat, says(parts)) == [says(parts)]


def test_thoughts_are_shown_to_people_under_either_name(chat: OpenAI) -> None:
    for name in ("reasoning", "reasoning_content"):
        reply = chat.parse(wire(says("It left.", **{name: "Hm."})), "chat")
        assert reply.output[0] == {"type": "reasoning", "text": "Hm."}


def test_a_reply_of_another_wire_is_told_in_this_one(chat: OpenAI) -> None:
    calls = (ToolRequest("toolu_1", "look up!", '{"order": 7}'), ToolRequest("toolu_2", "look_up", "{broken"))
    foreign = AssistantMessage('{"not": "ours"}', "messages", "Let me look.", calls)
    assert chat.render(asked(chat, [HELLO, foreign]))["messages"][2] == says(
        "Let me look.",
        {"id": "toolu_1", "type": "function", "function": {"name": "look_up_", "arguments": '{"order": 7}'}},
        {"id": "toolu_2", "type": "function", "function": {"name": "look_up", "arguments": "{}"}},
    )


def test_an_empty_message_is_left_out(chat: OpenAI) -> None:
    silent = AssistantMessage("", "messages", "")
    messages = chat.render(asked(chat, [UserMessage(""), silent, HELLO], instructions=""))["messages"]
    assert messages == [{"role": "user", "content": "Where is order 7?"}]


def test_a_longer_conversation_starts_with_the_shorter_one(chat: OpenAI) -> None:
    said = replayed(chat.parse(wire(says("Let me look.", CALL), "tool_calls"), "chat"), "chat")
    conversation = [HELLO, said, results(said, "ok", notice="2 left."), said, results(said, "ok")]
    shorter, longer = (chat.render(asked(chat, conversation[:length])) for length in (3, 5))
    assert longer["messages"][: len(shorter["messages"])] == shorter["messages"]
    assert {**longer, "messages": 0} == {**shorter, "messages": 0}


def test_a_turn_keeps_its_wire_when_the_setting_changes(chat: OpenAI) -> None:
    responses = OpenAI("local", api="responses")
    body = responses.render(asked(chat))
    assert "messages" in body and "input" not in body
    assert responses.parse(wire(says("hi")), "chat").text == "hi"
