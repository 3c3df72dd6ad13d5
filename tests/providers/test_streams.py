"""Replies that come piece by piece: the same as whole ones, to the byte of the request that follows."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from agentturns.providers.anthropic import Anthropic
from agentturns.providers.base import Fault, ModelReply, ProviderError, Usage
from agentturns.providers.openai import OpenAI
from agentturns.providers.remote import RemoteProvider
from tests.providers.conversations import HELLO, asked, replayed, results
from tests.providers.kinds import ALL, IDS, KINDS, chat_call, completion, message, response, said_item, text_block
from tests.providers.streams import as_stream, event
from tests.wire_server import WireServer, answer, stream

KEY = "sk-loopback-1234567890"
MAKERS: dict[str, Callable[..., RemoteProvider]] = {
    "responses": lambda url, **more: OpenAI("it", base_url=f"{url}/v1", api_key=KEY, **more),
    "chat": lambda url, **more: OpenAI("it", base_url=f"{url}/v1", api="chat", api_key=KEY, **more),
    "messages": lambda url, **more: Anthropic("it", base_url=url, api_key=KEY, **more),
}
SHORT = {
    "responses": response(said_item("It left. It is on its way.")),
    "chat": completion({"content": "It left. It is on its way."}),
    "messages": message(text_block("It left. It is on its way."), stop_reason="end_turn"),
}
every_wire = pytest.mark.parametrize("flavour", list(MAKERS))


def call(wire: WireServer, flavour: str, *, timeout: float = 5, on_text: Any = None, **options: Any) -> ModelReply:
    provider = MAKERS[flavour](wire.url, **{"stream": True, **options})
    return provider.call(asked(provider), timeout=timeout, on_text=on_text)


def failed(wire: WireServer, flavour: str, **more: Any) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        call(wire, flavour, **more)
    return raised.value


def next_request(flavour: str, reply: ModelReply) -> str:
    """The body of the request that follows ``reply`` and the results of its calls."""
    provider = MAKERS[flavour]("http://127.0.0.1:1")
    said = replayed(reply, flavour, [f"call_{number}" for number, _ in enumerate(reply.tool_calls)])
    conversation = [HELLO, said, *([results(said, *["ok"] * len(reply.tool_calls))] if reply.tool_calls else [HELLO])]
    return json.dumps(provider.render(asked(provider, conversation)))


@pytest.mark.parametrize("piece", [1, 10_000])
@pytest.mark.parametrize(("flavour", "kind"), ALL, ids=IDS)
def test_a_streamed_reply_is_the_whole_one(wire: WireServer, flavour: str, kind: str, piece: int) -> None:
    whole = KINDS[flavour][kind]
    wire.script(answer(whole), stream(as_stream(flavour, whole, piece)))
    one, other = call(wire, flavour), call(wire, flavour)
    for name in ("text", "tool_calls", "stop_reason", "complete", "usage", "model", "output", "price_context"):
        assert getattr(one, name) == getattr(other, name), name
    assert next_request(flavour, one) == next_request(flavour, other)


@every_wire
def test_the_stored_reply_is_one_json_text_without_spaces(wire: WireServer, flavour: str) -> None:
    wire.script(stream(as_stream(flavour, SHORT[flavour], 1)), stream(as_stream(flavour, SHORT[flavour], 9)))
    one, other = call(wire, flavour), call(wire, flavour)
    assert one.wire == other.wire
    assert one.wire == json.dumps(json.loads(one.wire), separators=(",", ":"), ensure_ascii=False)


@every_wire
@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_line_ends_comments_and_pieces_of_any_size_change_nothing(
    wire: WireServer, flavour: str, line_end: str
) -> None:
    body = ": here\n\n" + as_stream(flavour, SHORT[flavour]).replace("\n\n", "\n: still here\nid: 7\n\n")
    wire.script(stream("\ufeff" + body.replace("\n", line_end), drip_seconds=0.00001))
    assert call(wire, flavour).text == "It left. It is on its way."


@every_wire
def test_the_text_is_offered_as_it_comes(wire: WireServer, flavour: str) -> None:
    wire.script(stream(as_stream(flavour, SHORT[flavour], 9)))
    heard: list[str] = []
    call(wire, flavour, on_text=heard.append)
    assert heard == ["It left. ", "It is on ", "its way."]


@every_wire
def test_a_character_cut_in_half_is_offered_whole(wire: WireServer, flavour: str) -> None:
    make: Any = {
        "responses": lambda text: response(said_item(text)),
        "chat": lambda text: completion({"content": text}),
        "messages": lambda text: message(text_block(text), stop_reason="end_turn"),
    }[flavour]
    wire.script(stream(as_stream(flavour, make("🙂🙂"), 1)))
    heard: list[str] = []
    reply = call(wire, flavour, on_text=heard.append)
    assert (heard, reply.text) == (["🙂", "🙂"], "🙂🙂")


@every_wire
def test_a_lone_half_and_a_nul_can_be_stored_and_sent(wire: WireServer, flavour: str) -> None:
    body = as_stream(flavour, SHORT[flavour], 9).replace("It is on ", "a\\u0000b\\ud800c")
    wire.script(stream(body))
    reply = call(wire, flavour)
    if flavour != "responses":  # there the last event repeats the reply whole
        assert reply.text == "It left. a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}cits way."
    assert reply.wire.encode() and "\x00" not in reply.wire
    assert next_request(flavour, reply).encode()


@every_wire
def test_a_stream_is_asked_for_and_a_whole_answer_is_taken_too(wire: WireServer, flavour: str) -> None:
    wire.script(answer(SHORT[flavour]))
    heard: list[str] = []
    reply = call(wire, flavour, on_text=heard.append)
    assert heard == [reply.text] == ["It left. It is on its way."]
    body = wire.requests[0].json
    assert body["stream"] is True
    assert body.get("stream_options") == ({"include_usage": True} if flavour == "chat" else None)


DEFAULTS = [
    ("responses", {}, True),
    ("chat", {}, False),
    ("messages", {}, True),
    ("chat", {"base_url": "https://api.openai.com/v1"}, True),
    ("chat", {"stream": True}, True),
    ("messages", {"stream": False}, False),
    ("responses", {"stream": None}, True),
]


@pytest.mark.parametrize(("flavour", "options", "streams"), DEFAULTS)
def test_whether_replies_are_streamed_is_settled_in_the_turns_options(
    flavour: str, options: dict[str, Any], streams: bool
) -> None:
    made = {"responses": OpenAI, "chat": OpenAI, "messages": Anthropic}[flavour]
    api = {"api": "chat"} if flavour == "chat" else {}
    provider = made("it", **{"base_url": "http://127.0.0.1:1", "api_key": KEY, **api, **options})
    assert provider.request_options()["stream"] is streams
    assert provider.render(asked(provider)).get("stream", False) is streams


# -- what breaks -----------------------------------------------------------------------------------------------------


def without_its_end(flavour: str) -> str:
    marks = {"responses": "event: response.completed", "chat": '"finish_reason": "stop"', "messages": "message_delta"}
    body = as_stream(flavour, SHORT[flavour])
    cut = body[: body.index(marks[flavour])]
    return cut[: cut.rindex("data:")] if flavour != "responses" else cut


@every_wire
def test_a_stream_that_ends_without_a_reason_may_have_been_billed(wire: WireServer, flavour: str) -> None:
    wire.script(stream(without_its_end(flavour)))
    error = failed(wire, flavour)
    assert (error.fault, error.code, error.billed) == (Fault.TRANSIENT, "no_stop_reason", True)


@every_wire
def test_a_stream_that_is_cut_in_an_event_is_no_reply(wire: WireServer, flavour: str) -> None:
    wire.script(stream(without_its_end(flavour) + 'data: {"type": "mess'))
    assert failed(wire, flavour).code == "no_stop_reason"


@every_wire
def test_a_connection_lost_in_a_stream_may_have_been_billed(wire: WireServer, flavour: str) -> None:
    body = as_stream(flavour, SHORT[flavour])
    wire.script(stream(body, cut_at=len(without_its_end(flavour)), sized=True))
    error = failed(wire, flavour)
    assert (error.fault, error.code, error.billed) == (Fault.TRANSIENT, "connection_lost", True)


@every_wire
def test_a_connection_lost_after_the_end_of_the_reply_loses_nothing(wire: WireServer, flavour: str) -> None:
    body = as_stream(flavour, SHORT[flavour])
    wire.script(stream(body + ": more", cut_at=len(body), sized=True))
    assert call(wire, flavour).text == "It left. It is on its way."


@every_wire
def test_a_server_that_keeps_the_connection_after_the_reply_is_not_waited_for(wire: WireServer, flavour: str) -> None:
    body, hold = as_stream(flavour, SHORT[flavour]), threading.Event()
    wire.script(stream(body, hold=hold, hold_at=len(body.encode())))
    started = time.monotonic()
    assert call(wire, flavour, timeout=20).complete
    hold.set()
    assert time.monotonic() - started < 5


@every_wire
def test_our_deadline_ends_an_answer_that_stalls(wire: WireServer, flavour: str) -> None:
    hold = threading.Event()
    wire.script(stream(without_its_end(flavour), hold=hold, hold_at=30))
    error = failed(wire, flavour, timeout=0.3)
    hold.set()
    assert (error.fault, error.code, error.billed) == (Fault.TRANSIENT, "timeout", True)


@pytest.mark.parametrize("streamed", [True, False])
def test_our_deadline_does_not_start_anew_with_a_piece_that_comes_late(wire: WireServer, streamed: bool) -> None:
    late, began = threading.Event(), time.monotonic()
    threading.Timer(0.8, late.set).start()
    slowly: Any = {"hold": late, "hold_at": 30, "drip_seconds": 30.0}
    body = as_stream("messages", SHORT["messages"]) if streamed else json.dumps(SHORT["messages"])
    wire.script(stream(body, **slowly) if streamed else answer(body, **slowly))
    assert failed(wire, "messages", timeout=1.0).code == "timeout"
    # A socket's own time-out would have begun again after 0.8 seconds.
    assert time.monotonic() - began < 1.6


@every_wire
@pytest.mark.parametrize("broken", ["data: {oops\n\n", "data: [1]\n\n", b"data: \xff\n\n"])
def test_an_event_that_is_no_json_object_is_a_fault(wire: WireServer, flavour: str, broken: str | bytes) -> None:
    start = without_its_end(flavour).encode()
    wire.script(stream(start + (broken if isinstance(broken, bytes) else broken.encode()) + b"data: more\n\n"))
    error = failed(wire, flavour)
    assert (error.fault, error.billed) == (Fault.TRANSIENT, True)
    assert error.code in ("invalid_json", "malformed_reply")


OVERLOADED = {
    "responses": {"type": "error", "code": "server_is_overloaded", "message": "Busy.", "param": None},
    "chat": {"error": {"type": "overloaded_error", "message": "Busy."}},
    "messages": {"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}},
}


@every_wire
def test_an_overload_in_the_middle_of_a_stream_is_transient_and_may_have_been_billed(
    wire: WireServer, flavour: str
) -> None:
    wire.script(stream(without_its_end(flavour) + event(OVERLOADED[flavour], "error")))
    error = failed(wire, flavour)
    assert (error.fault, error.billed) == (Fault.TRANSIENT, True)
    assert "Busy." in str(error)


@every_wire
def test_an_overload_before_anything_was_said_is_not_billed(wire: WireServer, flavour: str) -> None:
    wire.script(stream(event(OVERLOADED[flavour], "error")))
    error = failed(wire, flavour)
    assert (error.fault, error.billed) == (Fault.TRANSIENT, False)


def test_a_spend_limit_reported_in_a_stream_is_one() -> None:
    from agentturns.providers.faults import Endpoint
    from agentturns.providers.openai_responses_stream import GatheredResponse

    with pytest.raises(ProviderError) as raised:
        GatheredResponse(Endpoint("it")).hear('{"type": "error", "code": "insufficient_quota", "message": "No."}')
    assert raised.value.fault == Fault.SPEND_LIMIT


def test_a_response_that_failed_in_its_last_event_is_its_fault_with_its_usage(wire: WireServer) -> None:
    error = {"code": "rate_limit_exceeded", "message": "Slow."}
    wire.script(stream(as_stream("responses", response(said_item("It"), status="failed", error=error))))
    raised = failed(wire, "responses")
    assert (raised.fault, raised.billed) == (Fault.RATE_LIMITED, True)
    assert raised.usage == Usage(100, 40, None, 20, 15)


def test_a_response_whose_last_event_leaves_the_items_out_has_those_that_came_before(wire: WireServer) -> None:
    whole = SHORT["responses"]
    *before, _ = as_stream("responses", whole).split("event: response.completed")
    wire.script(stream(before[0] + event({"type": "response.completed", "response": {**whole, "output": []}})))
    assert call(wire, "responses").text == "It left. It is on its way."


# -- usage -----------------------------------------------------------------------------------------------------------


def test_the_usage_seen_before_a_break_comes_with_the_error(wire: WireServer) -> None:
    wire.script(stream(without_its_end("messages")))
    usage = failed(wire, "messages").usage
    # 26 characters were written: 13 tokens, at two bytes a token.
    assert usage == Usage(input_tokens=100, cached_input_tokens=40, cache_write_tokens=10, output_tokens=13)


@pytest.mark.parametrize("flavour", ["responses", "chat"])
def test_a_wire_that_tells_its_usage_last_has_told_none_before_a_break(wire: WireServer, flavour: str) -> None:
    wire.script(stream(without_its_end(flavour)))
    assert failed(wire, flavour).usage is None


def test_counts_of_anthropics_stream_are_totals_and_not_added_up(wire: WireServer) -> None:
    start = without_its_end("messages")
    deltas = [
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 12, "input_tokens": None}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 20, "cache_read_input_tokens": 41},
        },
    ]
    wire.script(stream(start + "".join(map(event, deltas)) + event({"type": "message_stop"})))
    usage = call(wire, "messages").usage
    assert (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens) == (101, 41, 20)


def test_a_chat_stream_without_a_usage_chunk_has_unknown_usage(wire: WireServer) -> None:
    body = as_stream("chat", completion({"content": "It left."}, usage=None))
    wire.script(stream(body))
    assert call(wire, "chat").usage == Usage()


def test_usage_told_with_every_chunk_counts_once(wire: WireServer) -> None:
    body = as_stream("chat", SHORT["chat"])
    for number in range(3):
        told = json.dumps({"prompt_tokens": 100, "completion_tokens": number})
        body = body.replace('"usage": null', f'"usage": {told}', 1)
    wire.script(stream(body))
    assert call(wire, "chat").usage == Usage(input_tokens=100, output_tokens=20)


# -- liberties of chat servers -----------------------------------------------------------------------------------------


def chat_stream(*deltas: dict[str, Any]) -> str:
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    return "".join(map(event, [*chunks, last])) + event("[DONE]")


def part(call_id: str | None = None, name: str | None = None, arguments: str | None = None, **more: Any) -> Any:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"id": call_id, "type": "function", "function": function, **more}]}


LIBERTIES = {
    "every call has the index 0": (
        part("a", "look_up", '{"order":1}', index=0),
        part("b", "look_up", '{"order":2}', index=0),
    ),
    "no call has an index": (
        part("a", "look_up", '{"order":1}'),
        part("b", "look_up", '{"order":2}'),
    ),
    "neither index nor id": (
        part(None, "look_up", '{"order":1}'),
        part(None, "look_up", '{"order":2}'),
    ),
    "another id with every piece": (
        part("a", "look_up", '{"or', index=0),
        part("x", None, 'der":1}', index=0),
        part("b", "look_up", '{"or', index=1),
        part("y", None, 'der":2}', index=1),
    ),
    "the name with every piece": (
        part("a", "look_up", '{"or', index=0),
        part("a", "look_up", 'der":1}', index=0),
        part("b", "look_up", '{"order":2}', index=1),
    ),
    "pieces without an index": (
        part("a", "look_up", '{"or'),
        part(None, None, 'der":1}'),
        part("b", "look_up", '{"order":2}'),
    ),
    "calls that take turns": (
        part("a", "look_up", '{"or', index=0),
        part("b", "look_up", '{"or', index=1),
        part(None, None, 'der":1}', index=0),
        part(None, None, 'der":2}', index=1),
    ),
}


@pytest.mark.parametrize("deltas", LIBERTIES.values(), ids=LIBERTIES.keys())
def test_two_calls_stay_two_however_a_server_numbers_them(wire: WireServer, deltas: Any) -> None:
    wire.script(stream(chat_stream(*deltas)))
    calls = call(wire, "chat").tool_calls
    assert [(one.name, one.arguments) for one in calls] == [("look_up", '{"order":1}'), ("look_up", '{"order":2}')]


def test_arguments_that_come_as_an_object_are_taken(wire: WireServer) -> None:
    wire.script(stream(chat_stream({"tool_calls": [{**chat_call({"order": 7}), "index": 0}]})))
    assert call(wire, "chat").tool_calls[0].arguments == '{"order": 7}'


def test_only_the_first_choice_is_read(wire: WireServer) -> None:
    other = event({"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}]})
    wire.script(stream(other + as_stream("chat", SHORT["chat"])))
    assert call(wire, "chat").text == "It left. It is on its way."


def test_broken_arguments_on_anthropics_wire_are_kept_for_people(wire: WireServer) -> None:
    body = as_stream("messages", KINDS["messages"]["call"], 10_000).replace('{\\"order\\": 7', '{\\"order\\": ', 1)
    wire.script(stream(body))
    reply = call(wire, "messages")
    assert reply.tool_calls[0].arguments.startswith('{"order": ,')
    assert '"input": {}' in next_request("messages", reply)
