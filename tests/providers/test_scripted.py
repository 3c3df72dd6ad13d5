"""A scripted model says its lines in order, remembers what it was asked, and fails as it is told."""

from __future__ import annotations

import gc
import threading
import time
from decimal import Decimal
from typing import Any

import pytest

from agentturns.providers import get_provider, split_model
from agentturns.providers.base import (
    AssistantMessage,
    Fault,
    ModelReply,
    ModelRequest,
    ProviderError,
    ToolResult,
    ToolResults,
    UserMessage,
)
from agentturns.providers.scripted import Line, ScriptedModel, ScriptedRequest, reply

HELLO = UserMessage("hello")


def ask(model: str | ScriptedModel, *messages: Any, timeout: float = 5, state: Any = None) -> ModelReply:
    alias, name = split_model(model if isinstance(model, str) else model.model_id)
    return get_provider(alias).call(request(name, *messages, state=state), timeout=timeout)


def request(name: str, *messages: Any, state: Any = None) -> ModelRequest:
    tools = [{"name": "look_up", "description": "Looks up.", "parameters": {"type": "object"}}]
    return ModelRequest(
        model=name,
        flavour="scripted",
        instructions="Be brief.",
        tools=tools,
        messages=messages or (HELLO,),
        state=state,
    )


def said(answer: ModelReply) -> AssistantMessage:
    return AssistantMessage(answer.wire, "scripted", answer.text, answer.tool_calls)


def test_replies_come_in_the_order_of_the_list() -> None:
    model = ScriptedModel(["one", reply("two")])
    assert [ask(model).text, ask(model).text] == ["one", "two"]


def test_a_reply_tells_its_tokens_and_its_own_cost() -> None:
    model = ScriptedModel([reply("hi", input_tokens=10, output_tokens=5, cached_input_tokens=4, cost="0.125")])
    answer = ask(model)
    assert (answer.usage.input_tokens, answer.usage.cached_input_tokens, answer.usage.output_tokens) == (10, 4, 5)
    assert (answer.cost, answer.knows_cost) == (Decimal("0.125"), True)


def test_a_reply_without_a_cost_is_unpriced_and_not_free() -> None:
    model = ScriptedModel([reply("hi", cost=None)])
    answer = ask(model)
    assert (answer.cost, answer.knows_cost) == (None, True)


def test_a_float_for_money_is_refused_with_the_hint() -> None:
    with pytest.raises(TypeError, match=r"write Decimal\('0\.5'\)"):
        reply("hi", cost=0.5)  # type: ignore[arg-type]


def test_tool_calls_have_ids_of_their_own_in_the_conversation() -> None:
    calls = [("look_up", {"order": 1}), ("look_up", {"order": 1})]
    model = ScriptedModel([reply(tool_calls=calls), reply(tool_calls=calls)])
    ids = [call.call_id for _ in range(2) for call in ask(model).tool_calls]
    assert ids == ["call_0_0", "call_0_1", "call_1_0", "call_1_1"]


def test_arguments_given_as_text_are_sent_as_they_are() -> None:
    model = ScriptedModel([reply(tool_calls=[("look_up", '{"order": ')])])
    assert ask(model).tool_calls[0].arguments == '{"order": '


def test_a_cut_reply_is_not_complete() -> None:
    model = ScriptedModel([reply("half an ans", stop_reason="max_tokens"), "whole"])
    assert [(answer.stop_reason, answer.complete) for answer in (ask(model), ask(model))] == [
        ("max_tokens", False),
        ("stop", True),
    ]


def test_a_stored_reply_reads_as_the_fresh_one_did() -> None:
    model = ScriptedModel([reply("hi", [("look_up", {"order": "é\x00"})], 10, 5, cost=None)])
    answer = ask(model)
    assert get_provider("scripted").parse(answer.wire, "scripted") == answer


def test_the_request_is_kept_as_plain_values() -> None:
    model = ScriptedModel([reply("Looking.", [("look_up", {"order": 7})]), "done"])
    state = object()
    first = ask(model, HELLO, state=state)
    results = ToolResults((ToolResult("call_0_0", "look_up", "lost", is_error=True),), notice="2 calls left")
    ask(model, HELLO, said(first), results, state=state)
    kept = model.requests[1]
    assert kept.messages == [
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [{"id": "call_0_0", "name": "look_up", "arguments": {"order": 7}}],
        },
        {"role": "tool", "call_id": "call_0_0", "name": "look_up", "content": "lost", "is_error": True},
        {"role": "user", "content": "2 calls left"},
    ]
    assert (kept.model, kept.instructions, kept.state) == (model.name, "Be brief.", state)
    assert [tool["name"] for tool in kept.tools] == ["look_up"]


def test_a_kept_request_does_not_grow_with_the_conversation() -> None:
    model = ScriptedModel(["one", "two"])
    messages: list[Any] = [HELLO]
    get_provider("scripted").call(ModelRequest(model.name, "scripted", "", [], messages), timeout=1)
    messages.append(UserMessage("more"))
    assert len(model.requests[0].messages) == 1


def test_a_function_of_the_request_can_be_the_script() -> None:
    def answer(asked: ScriptedRequest) -> Line:
        return reply(asked.messages[-1]["content"].upper(), cost="0.5")

    model = ScriptedModel(answer)
    assert ask(model, UserMessage("loud")).text == "LOUD"
    assert get_provider("scripted").expected_cost(request(model.name)) is None


def test_a_named_model_is_found_by_its_name() -> None:
    ScriptedModel(["hi"], name="greeter")
    assert ask("scripted:greeter").text == "hi"


def test_a_name_made_again_stands_for_the_new_model() -> None:
    ScriptedModel(["old"], name="greeter")
    ScriptedModel(["new"], name="greeter")
    assert ask("scripted:greeter").text == "new"


def test_a_model_without_a_name_goes_away_with_its_last_user() -> None:
    model = ScriptedModel(["hi"])
    model_id = model.model_id
    assert ask(model_id).text == "hi"
    del model
    gc.collect()
    with pytest.raises(ProviderError, match="No scripted model is named"):
        ask(model_id)


def test_an_unknown_name_parks_with_the_way_out() -> None:
    with pytest.raises(ProviderError, match=r"in an agents\.py") as error:
        ask("scripted:nobody")
    assert error.value.fault == Fault.PERMANENT


def test_a_script_that_runs_out_says_how_long_it_was() -> None:
    model = ScriptedModel(["only"], name="short")
    ask(model)
    with pytest.raises(
        ProviderError, match="scripted:short was asked for reply number 2, but its script ends after 1"
    ) as error:
        ask(model)
    assert error.value.fault == Fault.PERMANENT


def test_a_process_that_takes_over_goes_on_after_the_replies_that_exist() -> None:
    script = [reply("Looking.", [("look_up", {})]), "found it"]
    first = ask(ScriptedModel(script, name="handed_over"))
    ScriptedModel(script, name="handed_over")  # as the next process makes it
    results = ToolResults((ToolResult("call_0_0", "look_up", "ok"),))
    assert ask("scripted:handed_over", HELLO, said(first), results).text == "found it"


def test_another_models_replies_in_the_conversation_do_not_move_the_list() -> None:
    earlier = ask(ScriptedModel(["earlier"], name="one_model"))
    later = ScriptedModel(["later"], name="another_model")
    assert ask(later, HELLO, said(earlier), HELLO).text == "later"


def test_a_scripted_fault_is_raised_as_it_is() -> None:
    fault = ProviderError("Come back later.", fault=Fault.RATE_LIMITED, retry_after=3)
    model = ScriptedModel([fault, "hi"])
    with pytest.raises(ProviderError) as error:
        ask(model)
    assert error.value is fault
    assert ask(model).text == "hi"


@pytest.mark.parametrize("script", [[KeyError("x")], lambda asked: asked.nothing, lambda asked: None])
def test_a_script_that_breaks_is_a_fault_that_names_it(script: Any) -> None:
    model = ScriptedModel(script, name="broken")
    with pytest.raises(ProviderError, match="The script of scripted:broken raised") as error:
        ask(model)
    assert error.value.fault == Fault.PERMANENT


def test_a_line_that_is_no_reply_is_refused_when_the_model_is_made() -> None:
    with pytest.raises(TypeError, match=r"use reply\(…\), text or an exception"):
        ScriptedModel([42])  # type: ignore[list-item]


def test_the_next_cost_is_known_before_the_call_and_the_list_stays() -> None:
    model = ScriptedModel([reply("hi", cost="0.25"), reply("ho", cost=None)])
    provider = get_provider("scripted")
    assert provider.expected_cost(request(model.name)) == Decimal("0.25")
    assert ask(model).text == "hi"
    assert provider.expected_cost(request(model.name)) is None
    assert provider.expected_cost(request("nobody")) is None


def test_assert_used_names_what_was_left() -> None:
    model = ScriptedModel(["one", "two", "three"], name="chatty")
    ask(model)
    with pytest.raises(AssertionError, match="2 of 3 replies of scripted:chatty were not used"):
        model.assert_used()
    ask(model), ask(model)
    model.assert_used()


def test_assert_used_finds_a_function_that_was_never_asked() -> None:
    model = ScriptedModel(lambda asked: "hi", name="silent")
    with pytest.raises(AssertionError, match="scripted:silent was never asked"):
        model.assert_used()
    ask(model)
    model.assert_used()


def test_a_delay_passes_before_the_reply() -> None:
    started = time.monotonic()
    ask(ScriptedModel([reply("hi", delay=0.05)]))
    assert time.monotonic() - started >= 0.05


def test_a_delay_beyond_the_timeout_is_a_call_that_may_have_been_billed() -> None:
    with pytest.raises(ProviderError, match=r"did not answer within 0\.01 seconds") as error:
        ask(ScriptedModel([reply("hi", delay=30)]), timeout=0.01)
    assert (error.value.fault, error.value.billed) == (Fault.TRANSIENT, True)


def test_the_text_is_handed_on_as_it_arrives() -> None:
    heard: list[str] = []
    model = ScriptedModel(["hi"])
    get_provider("scripted").call(request(model.name), timeout=1, on_text=heard.append)
    assert heard == ["hi"]


def test_threads_that_share_a_model_get_each_line_once() -> None:
    model = ScriptedModel([str(number) for number in range(200)])
    heard: list[str] = []
    start = threading.Barrier(8)

    def talk() -> None:
        start.wait()
        for _ in range(25):
            heard.append(ask(model).text)

    threads = [threading.Thread(target=talk) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(heard, key=int) == [str(number) for number in range(200)]
    model.assert_used()
