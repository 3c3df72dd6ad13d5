"""What vendors may keep of a conversation: the same start in every request, and marks where it is to be kept."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from agentturns import Limits, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.anthropic import Anthropic
from agentturns.providers.base import AssistantMessage, Message, ToolRequest, ToolResult, ToolResults, UserMessage
from tests.providers.conversations import asked, without_marks
from tests.providers.kinds import KINDS, THINKING, chat_call, completion, message, response, text_block
from tests.providers.loopback import asking, at, providers
from tests.wire_server import WireServer, answer

STEPS = 12


@tool(effect="idempotent")
def look_up(order: int = 0, note: str = "", empty: dict[str, str] | None = None) -> str:
    """Looks an order up."""
    return f"order {order}"


def marked(value: Any) -> list[Any]:
    """Every object below ``value`` that carries a mark, in the order of the request's text."""
    found = []
    if isinstance(value, dict):
        found += [value] if "cache_control" in value else []
        found += [one for item in value.values() for one in marked(item)]
    elif isinstance(value, list):
        found += [one for item in value for one in marked(item)]
    return found


def blocks_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [block for one in body["messages"] for block in one["content"]]


def anchors_of(body: dict[str, Any]) -> list[int]:
    return [place for place, block in enumerate(blocks_of(body)) if "cache_control" in block]


def use(step: int, position: int) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{step}_{position}", "name": "look_up", "input": {"order": step}}


def check_run(bodies: list[dict[str, Any]]) -> None:
    """Few marks, the newest near the one before, that one where the last request was kept, the start unchanged."""
    for number, body in enumerate(bodies):
        assert len(marked(body)) <= 4
        *before, newest = anchors_of(body)
        assert newest == len(blocks_of(body)) - 1
        assert "cache_control" in body["system"][-1]
        if number:
            kept = anchors_of(bodies[number - 1])[-1]
            assert before[0] == kept and newest - before[-1] <= 20
            earlier, now = (without_marks(blocks_of(one))[: kept + 1] for one in (bodies[number - 1], body))
            assert json.dumps(now) == json.dumps(earlier)
            for part in ("tools", "system", "model"):
                assert json.dumps(without_marks(body[part])) == json.dumps(without_marks(bodies[0][part]))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("calls", [1, 4])
def test_twelve_steps_each_begin_as_the_one_before(wire: WireServer, calls: int) -> None:
    steps = [
        message(THINKING, text_block(f"Step {step}."), *(use(step, position) for position in range(calls)))
        for step in range(1, STEPS)
    ]
    wire.script(*map(answer, [*steps, message(text_block("Done."), stop_reason="end_turn")]))
    with providers(wire.url):
        # Tight enough for a notice to be told on the way.
        agent = asking("messages", tools=[look_up], limits=Limits(max_tool_calls=50))
        turn = run_turn(agent.start("Look them all up.").pk)
    bodies = [request.json for request in wire.requests]
    assert (turn.status, len(bodies), turn.notices.exists()) == ("completed", STEPS, calls == 4)
    check_run(bodies)
    assert all("cache_control" in body["tools"][-1] for body in bodies)


@pytest.mark.parametrize("size", [9, 10, 11, 19, 20, 21, 30, 60])
def test_large_batches_keep_the_distance_and_the_number_of_marks(size: int) -> None:
    claude = Anthropic("anthropic", api_key="any-text")
    conversation: list[Message] = [UserMessage("Look them all up.")]
    bodies = [claude.render(asked(claude, conversation))]
    for step in range(1, STEPS):
        requests = tuple(ToolRequest(f"toolu_{step}_{n}", "look_up", "{}") for n in range(size))
        reply = message(THINKING, *(use(step, position) for position in range(size)))
        conversation.append(AssistantMessage(json.dumps(reply), "messages", "", requests))
        conversation.append(ToolResults(tuple(ToolResult(one.call_id, one.name, "ok") for one in requests)))
        bodies.append(claude.render(asked(claude, conversation)))
    check_run(bodies)


def test_no_thought_and_no_unknown_block_is_marked() -> None:
    claude = Anthropic("anthropic", api_key="any-text")
    odd = message(*[{"type": "a_block_of_next_year"}, THINKING] * 15, text_block("So."), stop_reason="end_turn")
    said = AssistantMessage(json.dumps(odd), "messages", "So.")
    body = claude.render(asked(claude, [UserMessage("Think."), said, UserMessage("And?")]))
    assert {block["type"] for block in marked(body["messages"])} == {"text"}
    assert len(marked(body)) <= 4


def test_the_tools_are_marked_where_there_is_no_system_prompt() -> None:
    claude = Anthropic("anthropic", api_key="any-text")
    body = claude.render(asked(claude, instructions=""))
    assert "system" not in body and "cache_control" in body["tools"][-1]


def test_without_prompt_caching_there_is_no_mark() -> None:
    claude = Anthropic("anthropic", api_key="any-text", prompt_caching=False)
    body = claude.render(asked(claude))
    assert marked(body) == [] and body == without_marks(body)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("flavour", ["responses", "chat"])
def test_openai_gets_one_cache_key_for_a_session_and_each_request_begins_as_the_one_before(
    wire: WireServer, flavour: str
) -> None:
    def call(step: int) -> dict[str, Any]:
        if flavour == "chat":
            return completion(
                {"content": None, "tool_calls": [chat_call('{"order": 7}', f"call_{step}")]}, "tool_calls"
            )
        item = {"type": "function_call", "call_id": f"call_{step}", "name": "look_up", "arguments": '{"order": 7}'}
        return response({"type": "reasoning", "id": f"rs_{step}", "encrypted_content": "g="}, item)

    texts = KINDS[flavour]["text"]
    wire.script(*map(answer, [*map(call, range(1, STEPS)), texts, texts]))
    with at({flavour: f"{wire.url}/v1"}, prompt_cache_key=True):
        agent = asking(flavour, tools=[look_up])
        turn = run_turn(agent.start("Look them all up.").pk)
        run_turn(turn.session.send("Again.").pk)
        run_turn(agent.start("Another session.").pk)
    bodies = [request.json for request in wire.requests]
    keys = [body["prompt_cache_key"] for body in bodies]
    assert len(bodies) == STEPS + 2
    assert set(keys[: STEPS + 1]) == {f"session-{turn.session_id}"} and keys[-1] not in keys[:-1]

    said = "input" if flavour == "responses" else "messages"
    for earlier, now in itertools.pairwise(bodies[: STEPS + 1]):
        assert json.dumps(now[said][: len(earlier[said])]) == json.dumps(earlier[said])
        assert list(now) == list(earlier) and now["tools"] == earlier["tools"]
