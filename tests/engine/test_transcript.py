"""What the model is sent: rebuilt from rows alone, one result per request, each request a continuation of the last."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agentturns import Agent, Limits, tool
from agentturns.engine.runner import run_turn
from agentturns.engine.transcript import Transcript
from agentturns.providers.scripted import ScriptedModel, reply

pytestmark = pytest.mark.django_db(transaction=True)


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    if text == "bad":
        raise ValueError("bad text")
    return f"noted {text}"


def asks(*texts: str, **options: Any) -> Any:
    return reply(tool_calls=[("note", {"text": text}) for text in texts], **options)


def test_each_request_continues_the_one_before_and_equals_what_the_rows_give() -> None:
    model = ScriptedModel([asks("a"), asks("bad", "c", cost="0.3"), asks("d"), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[note], limits=Limits(max_cost="0.2"))
    turn = run_turn(agent.start("go").pk)
    turn = run_turn(turn.raise_budget(max_cost=1).pk)
    assert turn.status == "completed"

    sent = [request.messages for request in model.requests]
    for earlier, later in itertools.pairwise(sent):
        assert later[: len(earlier)] == earlier
    rebuilt = Transcript(turn).messages
    assert list(model.requests[-1]._messages) == rebuilt[: len(model.requests[-1]._messages)]


def test_every_request_gets_exactly_one_result_in_its_order() -> None:
    model = ScriptedModel([asks("a", "bad", "c"), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[note])
    run_turn(agent.start("go").pk)
    asked = model.requests[1].messages[-4]["tool_calls"]
    results = model.requests[1].messages[-3:]
    assert [result["call_id"] for result in results] == [call["id"] for call in asked]
    assert [(result["content"], result["is_error"]) for result in results] == [
        ("noted a", False),
        ("Error: ValueError: bad text", True),
        ("noted c", False),
    ]


def test_a_later_turn_sees_the_earlier_ones_and_how_an_unanswered_one_ended() -> None:
    model = ScriptedModel([asks("a", "b"), reply("second answer"), reply("third answer")])
    agent = Agent(
        name="tester",
        model=model,
        instructions="…",
        tools=[note],
        limits=Limits(max_tool_calls=1),
    )
    first = run_turn(agent.start("first").pk)
    assert first.park_reason == "max_tool_calls"
    first.cancel(reason="changed my mind")
    second = run_turn(first.session.send("second").pk)
    assert (second.status, second.index) == ("completed", 2)
    run_turn(first.session.send("third").pk)
    told = [(message["role"], message["content"]) for message in model.requests[-1].messages]
    assert told == [
        ("user", "first"),
        ("assistant", ""),
        ("tool", "noted a"),
        ("tool", "Not run: the turn ended (canceled)."),
        ("user", "(The request above was canceled before it was answered.)"),
        ("user", "second"),
        ("assistant", "second answer"),
        ("user", "third"),
    ]


def test_a_cut_reply_is_never_executed_and_a_retry_asks_again_as_if_it_had_not_been_seen() -> None:
    model = ScriptedModel([reply("half an ans", stop_reason="max_tokens"), reply("whole answer")])
    agent = Agent(name="tester", model=model, instructions="…")
    turn = run_turn(agent.start("go").pk)
    assert (turn.status, turn.error_code, turn.answer) == ("failed", "incomplete_reply", "half an ans")
    assert "max_tokens" in turn.error_message
    turn = run_turn(turn.retry().pk)
    assert (turn.status, turn.answer, turn.error_message) == ("completed", "whole answer", "")
    assert model.requests[1].messages == model.requests[0].messages


def test_tool_calls_of_a_cut_reply_are_refused_and_the_model_is_told() -> None:
    cut = reply(tool_calls=[("note", '{"text": "a')], stop_reason="max_tokens")
    model = ScriptedModel([cut, reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[note])
    turn = run_turn(agent.start("go").pk)
    call = turn.tool_calls.get()
    assert (turn.status, call.status, turn.tool_call_count) == ("completed", "refused", 0)
    assert call.output_text == "Not run: the reply was not complete (max_tokens)."


def test_a_long_result_is_cut_for_the_model_with_a_visible_mark(settings: Any) -> None:
    settings.AGENTTURNS = {"MAX_RESULT_CHARS": 20, "MAX_RESULT_BYTES": 100}
    model = ScriptedModel([asks("x" * 50), asks("y" * 200), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[note])
    turn = run_turn(agent.start("go").pk)
    first, second = turn.tool_calls.order_by("step__index")
    assert first.output_text == f"noted {'x' * 14}\n[cut here: 20 of 56 characters shown]"
    assert first.result == f"noted {'x' * 50}"
    assert "not stored: 208 bytes, above AGENTTURNS['MAX_RESULT_BYTES'] = 100" in second.result


def test_instructions_are_rendered_once_and_kept_through_a_change_of_code() -> None:
    rendered: list[int] = []

    def instructions(state: Any) -> str:
        rendered.append(1)
        return f"Serve {state.tenant}."

    model = ScriptedModel([asks("a", cost="0.3"), reply("done")])
    agent = Agent(name="tester", model=model, instructions=instructions, tools=[note], limits=Limits(max_cost="0.2"))
    turn = run_turn(agent.start("go", tenant="acme").pk)
    agent.instructions, agent.tools = "Changed.", ()
    turn = run_turn(turn.raise_budget(max_cost=1).pk)
    assert turn.status == "completed"
    assert [request.instructions for request in model.requests] == ["Serve acme.", "Serve acme."]
    assert model.requests[0].tools == model.requests[1].tools
    assert rendered == [1]
