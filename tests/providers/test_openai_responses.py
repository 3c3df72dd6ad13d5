"""The Responses wire: what is sent, what is read, and that what was said before is sent again as it was."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from agentturns.providers.base import AssistantMessage, Fault, ProviderError, ToolRequest, Usage, UserMessage
from agentturns.providers.openai import OpenAI
from tests.providers.conversations import HELLO, PARAMETERS, asked, dumped, replayed, results

REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "encrypted_content": "gAAAA==",
    "summary": [{"type": "summary_text", "text": "Need the order."}],
    "an_unknown_key": {"b": None, "a": [1.5, "é"]},
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "arguments": '{ "order":7 }',
    "call_id": "call_a",
    "name": "look_up",
}
OTHER_CALL = {**CALL, "id": "fc_2", "call_id": "call_b"}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Let me look.", "annotations": [], "logprobs": []}],
}
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 10},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 15},
    "total_tokens": 120,
}


def wire(*output: dict[str, Any], **changes: Any) -> str:
    body = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-5-mini-2025-08-07",
        "output": list(output),
        "service_tier": "default",
        "usage": USAGE,
    }
    return json.dumps({**body, **changes})


@pytest.fixture
def openai() -> OpenAI:
    return OpenAI("openai", api_key="sk-a-key-of-tests", stream=False)


def test_a_first_request(openai: OpenAI) -> None:
    body = openai.render(asked(openai, model="gpt-5-mini", max_output_tokens=500, cache_key="session-1"))
    assert body == {
        "model": "gpt-5-mini",
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "Where is order 7?"}],
        "tools": [
            {
                "type": "function",
                "name": "look_up",
                "description": "Looks an order up.",
                "parameters": PARAMETERS,
                "strict": False,
            }
        ],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 500,
        "prompt_cache_key": "session-1",
    }


def test_an_agent_without_tools_and_instructions_sends_neither(openai: OpenAI) -> None:
    body = openai.render(asked(openai, tools=[], instructions=""))
    assert body.keys() == {"model", "input", "store", "include"}


def test_a_model_without_reasoning_is_not_asked_for_it(openai: OpenAI) -> None:
    assert "include" not in openai.render(asked(openai, model="gpt-4.1-mini"))


def test_every_item_is_sent_again_as_it_came_and_in_its_place(openai: OpenAI) -> None:
    reply = openai.parse(wire(REASONING, MESSAGE, CALL, OTHER_CALL), "responses")
    said = replayed(reply, "responses")
    body = openai.render(asked(openai, [HELLO, said, results(said, "on its way", "(no output)", notice="2 left.")]))
    assert dumped(body["input"]) == dumped(
        [
            {"role": "user", "content": "Where is order 7?"},
            REASONING,
            MESSAGE,
            CALL,
            OTHER_CALL,
            {"type": "function_call_output", "call_id": "call_a", "output": "on its way"},
            {"type": "function_call_output", "call_id": "call_b", "output": "(no output)"},
            {"role": "user", "content": "2 left."},
        ]
    )


def test_a_reply_is_read(openai: OpenAI) -> None:
    reply = openai.parse(wire(REASONING, MESSAGE, CALL), "responses")
    assert reply.text == "Let me look."
    assert reply.tool_calls == (ToolRequest("call_a", "look_up", '{ "order":7 }'),)
    assert (reply.stop_reason, reply.complete) == ("completed", True)
    assert (reply.model, reply.request_id) == ("gpt-5-mini-2025-08-07", "resp_1")
    assert reply.price_context == {"service_tier": "default"}
    assert [block["type"] for block in reply.output] == ["reasoning", "text", "tool_call"]


def test_usage_is_inclusive_and_its_parts_are_subsets(openai: OpenAI) -> None:
    assert openai.parse(wire(MESSAGE), "responses").usage == Usage(100, 40, 10, 20, 15)


def test_usage_that_a_server_leaves_out_is_unknown_and_not_zero(openai: OpenAI) -> None:
    assert openai.parse(wire(MESSAGE, usage=None), "responses").usage == Usage()
    few = {"input_tokens": 100, "output_tokens": 20}
    assert openai.parse(wire(MESSAGE, usage=few), "responses").usage == Usage(input_tokens=100, output_tokens=20)


@pytest.mark.parametrize("number", [-1, True, "5", 1e300])
def test_a_count_that_cannot_be_is_unknown(openai: OpenAI, number: Any) -> None:
    usage = {"input_tokens": number, "output_tokens": 20}
    assert openai.parse(wire(MESSAGE, usage=usage), "responses").usage.input_tokens is None


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter", "not_heard_of"])
def test_a_cut_reply_is_not_complete(openai: OpenAI, reason: str) -> None:
    cut = wire(CALL, status="incomplete", incomplete_details={"reason": reason})
    reply = openai.parse(cut, "responses")
    assert (reply.stop_reason, reply.complete) == (reason, False)


def test_a_refusal_is_told_and_is_not_complete(openai: OpenAI) -> None:
    refusal = {**MESSAGE, "content": [{"type": "refusal", "refusal": "I cannot help with that."}]}
    reply = openai.parse(wire(refusal), "responses")
    assert (reply.text, reply.stop_reason, reply.complete) == ("I cannot help with that.", "refusal", False)


def test_what_was_said_on_the_way_is_no_part_of_the_answer(openai: OpenAI) -> None:
    def message(text: str, phase: str) -> dict[str, Any]:
        return {"type": "message", "phase": phase, "content": [{"type": "output_text", "text": text}]}

    reply = openai.parse(wire(message("Looking…", "commentary"), message("It left.", "final_answer")), "responses")
    assert reply.text == "It left."
    assert openai.parse(wire(message("Looking…", "commentary"), CALL), "responses").text == "Looking…"


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        ({"code": "server_error", "message": "Oops."}, Fault.TRANSIENT),
        ({"code": "rate_limit_exceeded", "message": "Slow."}, Fault.RATE_LIMITED),
        ({"code": "invalid_prompt", "message": "No."}, Fault.PERMANENT),
        (None, Fault.TRANSIENT),
    ],
)
def test_a_failed_status_inside_http_200_is_a_fault(openai: OpenAI, error: Any, fault: Fault) -> None:
    with pytest.raises(ProviderError) as raised:
        openai.parse(wire(status="failed", error=error, usage=None), "responses")
    assert (raised.value.fault, raised.value.billed) == (fault, True)


@pytest.mark.parametrize("status", ["cancelled", "in_progress", "queued"])
def test_a_reply_that_is_not_finished_is_a_fault(openai: OpenAI, status: str) -> None:
    with pytest.raises(ProviderError, match=status) as raised:
        openai.parse(wire(status=status), "responses")
    assert raised.value.fault == Fault.TRANSIENT


def test_a_reply_without_a_status_may_be_cut(openai: OpenAI) -> None:
    with pytest.raises(ProviderError, match="without a reason for its end") as raised:
        openai.parse(wire(MESSAGE, status=None), "responses")
    assert (raised.value.fault, raised.value.billed) == (Fault.TRANSIENT, True)


def test_invalid_arguments_are_kept_for_people_and_sent_again_as_an_empty_object(openai: OpenAI) -> None:
    broken = {**CALL, "arguments": '{"order": '}
    reply = openai.parse(wire(broken), "responses")
    assert reply.tool_calls[0].arguments == '{"order": '
    assert '{\\"order\\": ' in reply.wire
    sent = openai.render(asked(openai, [HELLO, replayed(reply, "responses")]))["input"][1]
    assert sent == {**CALL, "arguments": "{}"}


def test_the_conversations_own_ids_win_over_repeated_and_missing_ones(openai: OpenAI) -> None:
    nameless = {key: value for key, value in CALL.items() if key != "call_id"}
    reply = openai.parse(wire(CALL, CALL, nameless), "responses")
    assert [call.call_id for call in reply.tool_calls] == ["call_a", "call_a", ""]
    said = replayed(reply, "responses", ids=["call_a", "call_1_1_1", "call_1_1_2"])
    body = openai.render(asked(openai, [HELLO, said, results(said, "1", "2", "3")]))
    ids = [item["call_id"] for item in body["input"][1:]]
    assert ids == ["call_a", "call_1_1_1", "call_1_1_2"] * 2


def test_a_reply_of_another_wire_is_told_in_this_one(openai: OpenAI) -> None:
    calls = (ToolRequest("toolu_1", "look up!", '{"order": 7}'), ToolRequest("toolu_2", "look_up", "{broken"))
    foreign = AssistantMessage('{"not": "ours"}', "messages", "Let me look.", calls)
    sent = openai.render(asked(openai, [HELLO, foreign]))["input"][1:]
    assert sent == [
        {"role": "assistant", "content": "Let me look."},
        {"type": "function_call", "call_id": "toolu_1", "name": "look_up_", "arguments": '{"order": 7}'},
        {"type": "function_call", "call_id": "toolu_2", "name": "look_up", "arguments": "{}"},
    ]


def test_an_empty_message_is_left_out(openai: OpenAI) -> None:
    silent = AssistantMessage("", "messages", "")
    assert openai.render(asked(openai, [UserMessage(""), silent, HELLO]))["input"] == [
        {"role": "user", "content": "Where is order 7?"}
    ]


def test_nuls_and_lone_surrogates_in_a_reply_break_neither_the_row_nor_the_next_request(openai: OpenAI) -> None:
    text = {**MESSAGE, "content": [{"type": "output_text", "text": "a\x00b\ud800c"}]}
    call = {**CALL, "arguments": '{"order": "\\ud800"}'}
    reply = openai.parse(wire(text, call), "responses")
    assert reply.text == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    body = openai.render(asked(openai, [HELLO, replayed(reply, "responses")]))
    sent = dumped(body).encode()
    assert "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c".encode() in sent
    assert b"ud800" not in sent


def test_equal_conversations_are_equal_bytes(openai: OpenAI) -> None:
    reply = openai.parse(wire(REASONING, CALL), "responses")
    said = replayed(reply, "responses")
    first = asked(openai, [HELLO, said, results(said, "ok")])
    again = asked(OpenAI("openai", stream=False), [HELLO, said, results(said, "ok")])
    assert dumped(openai.render(first)) == dumped(openai.render(again))


def test_a_longer_conversation_starts_with_the_shorter_one(openai: OpenAI) -> None:
    said = replayed(openai.parse(wire(REASONING, CALL), "responses"), "responses")
    conversation = [HELLO, said, results(said, "ok", notice="2 left."), said, results(said, "ok")]
    bodies = [openai.render(asked(openai, conversation[:length])) for length in (1, 3, 5)]
    for shorter, longer in itertools.pairwise(bodies):
        assert longer["input"][: len(shorter["input"])] == shorter["input"]
        assert {**longer, "input": 0} == {**shorter, "input": 0}


def test_options_reach_the_body_from_the_snapshot_and_not_from_todays_settings(openai: OpenAI) -> None:
    then = OpenAI("openai", reasoning_effort="low", service_tier="flex", extra={"text": {"verbosity": "low"}})
    body = openai.render(asked(then))
    assert body["reasoning"] == {"effort": "low"}
    assert body["service_tier"] == "flex"
    assert body["text"] == {"verbosity": "low"}


def test_an_extra_overrides_what_is_sent_by_default() -> None:
    provider = OpenAI("openai", extra={"include": [], "store": True})
    body = provider.render(asked(provider))
    assert (body["include"], body["store"]) == ([], True)


def test_the_cache_key_goes_to_openai_and_elsewhere_only_when_told() -> None:
    def sends_key(**options: Any) -> bool:
        provider = OpenAI("openai", **options)
        return "prompt_cache_key" in provider.render(asked(provider, cache_key="session-1"))

    local = "http://127.0.0.1:1/v1"
    assert sends_key() and sends_key(base_url="https://eu.api.openai.com/v1")
    assert not sends_key(base_url=local) and not sends_key(base_url="https://api.openai.com.example.org/v1")
    assert sends_key(base_url=local, prompt_cache_key=True) and not sends_key(prompt_cache_key=False)


def test_snapshot_options_are_json_and_hold_no_secret() -> None:
    provider = OpenAI("openai", api_key="sk-secret-secret", headers={"X-Token": "also-a-secret"})
    assert "secret" not in json.dumps(provider.request_options())


@pytest.mark.parametrize(
    ("options", "pricing_id"),
    [
        ({}, "openai"),
        ({"base_url": "https://api.openai.com/v1"}, "openai"),
        ({"base_url": "http://127.0.0.1:11434/v1"}, ""),
        ({"base_url": "http://127.0.0.1:4000/v1", "pricing": "openai"}, "openai"),
        ({"base_url": "https://openrouter.ai/api/v1", "pricing": "openrouter"}, "openrouter"),
        ({"pricing": ""}, ""),
    ],
)
def test_only_the_vendors_own_address_has_the_vendors_prices(options: dict[str, Any], pricing_id: str) -> None:
    assert OpenAI("openai", **options).pricing_id == pricing_id


def test_an_address_from_the_environment_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:4000/v1")
    assert OpenAI("openai").pricing_id == ""
