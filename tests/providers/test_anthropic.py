"""Anthropic's Messages wire: blocks sent again as they came, results of a batch in one message, cut calls never run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentturns.providers.anthropic import Anthropic
from agentturns.providers.base import AssistantMessage, Fault, ProviderError, ToolRequest, Usage, UserMessage
from tests.providers.conversations import HELLO, PARAMETERS, asked, dumped, replayed, results

THINKING = {"type": "thinking", "thinking": "Need the order.", "signature": "EqQBCg=="}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgB"}
UNKNOWN = {"type": "a_block_of_next_year", "b": None, "a": [1.5, "é", {"z": 1, "y": 2}]}
TEXT = {"type": "text", "text": "Let me look.", "citations": None}
CALL = {"type": "tool_use", "id": "toolu_a", "name": "look_up", "input": {"order": 7}, "caller": {"type": "direct"}}
OTHER_CALL = {**CALL, "id": "toolu_b"}
USAGE = {
    "input_tokens": 50,
    "cache_creation_input_tokens": 10,
    "cache_read_input_tokens": 40,
    "cache_creation": {"ephemeral_5m_input_tokens": 6, "ephemeral_1h_input_tokens": 4},
    "output_tokens": 20,
    "output_tokens_details": {"thinking_tokens": 15},
    "service_tier": "standard",
}


def wire(*content: dict[str, Any], stop_reason: Any = "end_turn", **changes: Any) -> str:
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": USAGE,
    }
    return json.dumps({**body, **changes})


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def spoken(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def result(call_id: str, *texts: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": [spoken(text) for text in texts], **more}


@pytest.fixture
def claude() -> Anthropic:
    return Anthropic("anthropic", api_key="sk-ant-a-key-of-tests", prompt_caching=False, stream=False)


def said_by(claude: Anthropic, *content: dict[str, Any], ids: list[str] | None = None) -> AssistantMessage:
    return replayed(claude.parse(wire(*content, stop_reason="tool_use"), "messages"), "messages", ids)


def messages(claude: Anthropic, *conversation: Any) -> list[dict[str, Any]]:
    return list(claude.render(asked(claude, conversation))["messages"])


def test_a_first_request(claude: Anthropic) -> None:
    assert claude.render(asked(claude, model="claude-sonnet-5", max_output_tokens=500, cache_key="session-1")) == {
        "model": "claude-sonnet-5",
        "max_tokens": 500,
        "system": [spoken("Be brief.")],
        "tools": [{"name": "look_up", "description": "Looks an order up.", "input_schema": PARAMETERS}],
        "messages": [user(spoken("Where is order 7?"))],
    }


def test_an_agent_without_tools_and_instructions_sends_neither(claude: Anthropic) -> None:
    assert claude.render(asked(claude, tools=[], instructions="")).keys() == {"model", "max_tokens", "messages"}


def test_a_limit_is_always_sent_and_can_be_told(claude: Anthropic) -> None:
    assert claude.output_limit(asked(claude)) == 8192
    told = Anthropic("anthropic", max_tokens=2000)
    request = asked(told)
    assert claude.render(request)["max_tokens"] == claude.output_limit(request) == 2000
    assert claude.output_limit(asked(told, max_output_tokens=300)) == 300


def test_every_block_is_sent_again_as_it_came_and_in_its_place(claude: Anthropic) -> None:
    blocks = [THINKING, REDACTED, TEXT, UNKNOWN, CALL]
    said = said_by(claude, *blocks)
    assert dumped(messages(claude, HELLO, said)[1]) == dumped({"role": "assistant", "content": blocks})


def test_all_results_of_a_batch_are_in_the_very_next_message_with_the_notice_inside_the_last(
    claude: Anthropic,
) -> None:
    said = said_by(claude, CALL, OTHER_CALL)
    sent = messages(claude, HELLO, said, results(said, "on its way", "lost", notice="2 left."))
    assert sent[2] == user(result("toolu_a", "on its way"), result("toolu_b", "lost", "2 left."))


def test_what_the_user_says_after_results_comes_behind_them_in_the_same_message(claude: Anthropic) -> None:
    said = said_by(claude, CALL)
    sent = messages(claude, HELLO, said, results(said, "ok"), UserMessage("(canceled)"), UserMessage("And order 8?"))
    assert sent[2:] == [user(result("toolu_a", "ok"), spoken("(canceled)"), spoken("And order 8?"))]


def test_a_failed_call_is_marked(claude: Anthropic) -> None:
    said = said_by(claude, CALL)
    sent = messages(claude, HELLO, said, results(said, "no such order", failed=True))
    assert sent[2] == user(result("toolu_a", "no such order", is_error=True))


def test_an_empty_result_says_so(claude: Anthropic) -> None:
    said = said_by(claude, CALL)
    assert messages(claude, HELLO, said, results(said, ""))[2] == user(result("toolu_a", "(no output)"))


def test_a_reply_is_read(claude: Anthropic) -> None:
    reply = claude.parse(wire(THINKING, TEXT, CALL, stop_reason="tool_use"), "messages")
    assert (reply.text, reply.stop_reason, reply.complete) == ("Let me look.", "tool_use", True)
    assert reply.tool_calls == (ToolRequest("toolu_a", "look_up", '{"order": 7}'),)
    assert (reply.model, reply.request_id) == ("claude-sonnet-5", "msg_1")
    assert reply.price_context == {"service_tier": "standard"}
    assert [block["type"] for block in reply.output] == ["reasoning", "text", "tool_call"]


def test_the_whole_input_is_the_sum_of_the_vendors_parts(claude: Anthropic) -> None:
    assert claude.parse(wire(TEXT), "messages").usage == Usage(100, 40, 10, 20, 15, cache_write_1h_tokens=4)


def test_usage_that_is_left_out_is_unknown_and_not_zero(claude: Anthropic) -> None:
    assert claude.parse(wire(TEXT, usage=None), "messages").usage == Usage()
    few = {"input_tokens": 50, "output_tokens": 20}
    assert claude.parse(wire(TEXT, usage=few), "messages").usage == Usage(input_tokens=50, output_tokens=20)


ENDS = [
    ("end_turn", True),
    ("stop_sequence", True),
    ("max_tokens", False),
    ("refusal", False),
    ("model_context_window_exceeded", False),
    ("pause_turn", False),
    ("an_end_of_next_year", False),
]


@pytest.mark.parametrize(("stop_reason", "complete"), ENDS)
def test_only_an_end_that_the_model_chose_is_a_whole_answer(
    claude: Anthropic, stop_reason: str, complete: bool
) -> None:
    reply = claude.parse(wire(TEXT, stop_reason=stop_reason), "messages")
    assert (reply.stop_reason, reply.complete) == (stop_reason, complete)


@pytest.mark.parametrize("stop_reason", [end for end, _ in ENDS])
def test_calls_run_for_tool_use_and_for_no_other_end(claude: Anthropic, stop_reason: str) -> None:
    assert not claude.parse(wire(CALL, stop_reason=stop_reason), "messages").complete
    assert claude.parse(wire(CALL, stop_reason="tool_use"), "messages").complete


def test_a_reply_without_a_stop_reason_may_be_cut(claude: Anthropic) -> None:
    with pytest.raises(ProviderError, match="without a reason for its end") as raised:
        claude.parse(wire(TEXT, stop_reason=None), "messages")
    assert (raised.value.fault, raised.value.billed) == (Fault.TRANSIENT, True)


def test_an_overload_inside_http_200_is_a_fault(claude: Anthropic) -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ProviderError, match="Overloaded") as raised:
        claude.parse(json.dumps(body), "messages")
    assert (raised.value.fault, raised.value.code) == (Fault.TRANSIENT, "overloaded_error")


@pytest.mark.parametrize("content", [None, "text"])
def test_a_reply_without_content_is_a_fault(claude: Anthropic, content: Any) -> None:
    with pytest.raises(ProviderError, match="has no content"):
        claude.parse(wire(content=content), "messages")


def test_blocks_the_vendor_would_refuse_are_left_out(claude: Anthropic) -> None:
    unsigned = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    said = said_by(claude, unsigned, {"type": "text", "text": " \n"}, CALL)
    assert messages(claude, HELLO, said)[1] == {"role": "assistant", "content": [CALL]}


def test_an_assistant_that_said_nothing_is_left_out_and_the_user_speaks_on(claude: Anthropic) -> None:
    silent = replayed(claude.parse(wire({"type": "text", "text": ""}), "messages"), "messages")
    assert messages(claude, HELLO, silent, UserMessage("Hello?")) == [
        user(spoken("Where is order 7?"), spoken("Hello?"))
    ]


def test_a_call_without_an_object_is_sent_again_with_an_empty_one(claude: Anthropic) -> None:
    said = said_by(claude, {**CALL, "input": None})
    assert messages(claude, HELLO, said)[1]["content"] == [{**CALL, "input": {}}]


def test_the_conversations_own_ids_win_and_fit_the_vendors_pattern(claude: Anthropic) -> None:
    said = said_by(claude, CALL, CALL, ids=["functions.look_up:0", "call_1_1_1"])
    sent = messages(claude, HELLO, said, results(said, "1", "2"))
    asked_for = [block["id"] for block in sent[1]["content"]]
    assert asked_for == [block["tool_use_id"] for block in sent[2]["content"]]
    assert asked_for[1] == "call_1_1_1"
    assert all(set(call_id) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-") for call_id in asked_for)


def test_a_reply_of_another_wire_is_told_in_this_one(claude: Anthropic) -> None:
    calls = (ToolRequest("call_1", "look up!", '{"order": 7}'), ToolRequest("call_2", "look_up", "{broken"))
    foreign = AssistantMessage('{"not": "ours"}', "responses", "Let me look.", calls)
    assert messages(claude, HELLO, foreign)[1] == {
        "role": "assistant",
        "content": [
            spoken("Let me look."),
            {"type": "tool_use", "id": "call_1", "name": "look_up_", "input": {"order": 7}},
            {"type": "tool_use", "id": "call_2", "name": "look_up", "input": {}},
        ],
    }


def test_a_longer_conversation_starts_with_the_shorter_one(claude: Anthropic) -> None:
    said = said_by(claude, THINKING, CALL)
    conversation = [HELLO, said, results(said, "ok", notice="2 left."), said, results(said, "ok")]
    shorter, longer = (claude.render(asked(claude, conversation[:length])) for length in (3, 5))
    assert longer["messages"][: len(shorter["messages"])] == shorter["messages"]
    assert {**longer, "messages": 0} == {**shorter, "messages": 0}


def test_rendering_twice_gives_the_same_bytes(claude: Anthropic) -> None:
    said = said_by(claude, THINKING, UNKNOWN, CALL)
    request = asked(claude, [HELLO, said, results(said, "ok", notice="2 left.")])
    assert dumped(claude.render(request)) == dumped(claude.render(request))


def test_an_extra_reaches_the_body(claude: Anthropic) -> None:
    thinking = Anthropic("anthropic", extra={"thinking": {"type": "adaptive"}})
    assert claude.render(asked(thinking))["thinking"] == {"type": "adaptive"}


def test_only_the_vendors_own_address_has_the_vendors_prices() -> None:
    assert Anthropic("anthropic").pricing_id == "anthropic"
    assert Anthropic("anthropic", base_url="http://127.0.0.1:1").pricing_id == ""
    assert Anthropic("anthropic", base_url="http://127.0.0.1:1", pricing="anthropic").pricing_id == "anthropic"
