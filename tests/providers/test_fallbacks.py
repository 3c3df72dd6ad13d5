"""Several models for one agent: when one cannot take a step, the next does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentturns import Agent, ConfigurationError, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply
from tests.lost_workers import Died, expire_lease
from tests.providers.conversations import without_marks
from tests.providers.fault_lines import WHOLE, openai, refused
from tests.providers.kinds import KINDS, REASONING, call_item, message, response, text_block, use_block
from tests.providers.loopback import MODELS, asking, providers, run_again
from tests.wire_server import Answered, WireServer, answer

pytestmark = pytest.mark.django_db(transaction=True)

OPENAI, CHAT, CLAUDE = MODELS["responses"], MODELS["chat"], MODELS["messages"]
PATHS = {"/v1/responses": OPENAI, "/v1/chat/completions": CHAT, "/v1/messages": CLAUDE}
DOWN, SPENT = refused(503), openai(429, "insufficient_quota")


@tool(effect="idempotent")
def look_up(order: int = 0, note: str = "", empty: dict[str, str] | None = None) -> str:
    """Looks an order up."""
    return "on its way"


def asked_models(wire: WireServer) -> list[str]:
    return [PATHS[request.path] for request in wire.requests]


def agent_of(*models: str) -> Agent:
    return asking("responses", model=list(models), tools=[look_up])


def run_to_rest(turn: Turn) -> Turn:
    while (turn := run_again(turn)).status == "queued":
        pass
    return turn


def test_a_model_that_must_be_paid_first_hands_its_step_to_the_next_at_once(wire: WireServer) -> None:
    wire.script(SPENT, answer(WHOLE["messages"]))
    with providers(wire.url):
        turn = run_turn(agent_of(OPENAI, CLAUDE).start("Where?").pk)
    step = turn.steps.get()
    assert (turn.status, turn.answer, turn.run_after) == ("completed", "It left.", None)
    assert asked_models(wire) == [OPENAI, CLAUDE]
    assert (step.provider, step.requested_model, step.model) == ("messages", "claude-sonnet-4-5", "claude-sonnet-5")
    assert (step.attempts, turn.model) == (2, OPENAI)


def test_a_model_is_given_all_its_attempts_before_the_next_takes_over(wire: WireServer) -> None:
    wire.script(*[DOWN] * 6, answer(WHOLE["chat"]))
    with providers(wire.url):
        turn = run_to_rest(agent_of(OPENAI, CHAT).start("Where?"))
    assert turn.status == "completed"
    assert asked_models(wire) == [OPENAI] * 6 + [CHAT]
    assert turn.steps.get().attempts == len(wire.requests)


def test_the_next_model_has_attempts_of_its_own(wire: WireServer) -> None:
    wire.script(*[DOWN] * 11, answer(WHOLE["messages"]))
    with providers(wire.url):
        turn = run_to_rest(agent_of(OPENAI, CLAUDE).start("Where?"))
    assert (turn.status, turn.provider_failures) == ("completed", 0)
    assert asked_models(wire) == [OPENAI] * 6 + [CLAUDE] * 6


def test_a_turn_parks_when_no_model_can_and_a_retry_asks_all_again(wire: WireServer) -> None:
    wire.script(SPENT, openai(401, "invalid_api_key"), SPENT, answer(WHOLE["chat"]))
    with providers(wire.url):
        turn = run_turn(agent_of(OPENAI, CHAT).start("Where?").pk)
        assert (turn.status, turn.park_reason, turn.error_code) == ("parked", "provider_error", "invalid_api_key")
        assert turn.waiting_for.endswith("None of the turn's 2 models could take the step.")
        turn.retry()
        turn = run_turn(turn.pk)
    assert turn.status == "completed"
    assert asked_models(wire) == [OPENAI, CHAT, OPENAI, CHAT]


def test_whoever_took_a_step_takes_the_following_ones_and_the_next_turn_begins_with_the_first(wire: WireServer) -> None:
    calls = KINDS["messages"]["call"], KINDS["messages"]["thinking and two calls"]
    wire.script(SPENT, *map(answer, [*calls, WHOLE["messages"], WHOLE["responses"]]))
    with providers(wire.url):
        agent = agent_of(OPENAI, CLAUDE)
        turn = run_turn(agent.start("Where?").pk)
        run_turn(turn.session.send("And now?").pk)
    assert asked_models(wire) == [OPENAI, CLAUDE, CLAUDE, CLAUDE, OPENAI]


def test_after_the_last_model_the_first_is_asked_again(wire: WireServer) -> None:
    wire.script(SPENT, answer(KINDS["messages"]["call"]), SPENT, answer(WHOLE["responses"]))
    with providers(wire.url):
        turn = run_turn(agent_of(OPENAI, CLAUDE).start("Where?").pk)
    assert turn.status == "completed" and asked_models(wire) == [OPENAI, CLAUDE, CLAUDE, OPENAI]


def body_of(wire: WireServer, number: int = -1) -> str:
    return json.dumps(wire.requests[number].json)


def test_the_next_model_is_told_the_conversation_without_the_first_ones_private_blocks(wire: WireServer) -> None:
    first = response(REASONING, call_item('{"order": 7}'))
    wire.script(answer(first), SPENT, answer(WHOLE["messages"]))
    with providers(wire.url):
        turn = run_turn(agent_of(OPENAI, CLAUDE).start("Where?").pk)
    assert turn.status == "completed" and asked_models(wire) == [OPENAI, OPENAI, CLAUDE]
    assert "gAAAA==" in body_of(wire, 1) and "gAAAA==" not in body_of(wire)
    assert without_marks(wire.requests[-1].json["messages"]) == [
        {"role": "user", "content": [{"type": "text", "text": "Where?"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "call_a", "name": "look_up", "input": {"order": 7}}],
        },
        {"role": "user", "content": [result("call_a", "on its way")]},
    ]


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": text}]}


def test_another_model_of_the_same_vendor_gets_no_private_blocks_either(wire: WireServer) -> None:
    other = "responses:gpt-5-mini"
    wire.script(answer(response(REASONING, call_item())), SPENT, answer(WHOLE["responses"]))
    with providers(wire.url):
        turn = run_turn(agent_of(OPENAI, other).start("Where?").pk)
    assert (turn.status, wire.requests[-1].json["model"]) == ("completed", "gpt-5-mini")
    assert "gAAAA==" in body_of(wire, 1) and "gAAAA==" not in body_of(wire)


def test_a_model_that_comes_back_sees_its_own_blocks_again_and_the_others_words(wire: WireServer) -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "sig=="}
    claudes = message(thought, text_block("Let me look."), use_block("toolu_x"))
    wire.script(answer(response(REASONING, call_item())), SPENT, answer(claudes), SPENT, answer(WHOLE["responses"]))
    with providers(wire.url):
        turn = run_turn(agent_of(OPENAI, CLAUDE).start("Where?").pk)
    assert turn.status == "completed" and asked_models(wire) == [OPENAI, OPENAI, CLAUDE, CLAUDE, OPENAI]
    sent = body_of(wire)
    assert "gAAAA==" in sent and "Let me look." in sent and "toolu_x" in sent
    assert "sig==" not in sent and "Hm." not in sent


def test_the_list_is_the_snapshots_and_not_todays(wire: WireServer) -> None:
    @tool(approval="always")
    def refund(order: int) -> str:
        """Refunds an order."""
        return "done"

    call = response(call_item('{"order": 7}', name="refund"))
    wire.script(answer(call), SPENT, answer(WHOLE["messages"]))
    with providers(wire.url):
        agent = asking("responses", model=[OPENAI, CLAUDE], tools=[refund])
        turn = run_turn(agent.start("Refund it.").pk)
        assert turn.park_reason == "approval"
        with agent.override(model=CHAT):
            turn.tool_calls.get().approve()
            turn = run_turn(turn.pk)
    assert turn.status == "completed" and asked_models(wire) == [OPENAI, OPENAI, CLAUDE]


def test_a_crash_after_the_handing_over_goes_on_with_the_next_model(wire: WireServer, monkeypatch: Any) -> None:
    from agentturns.providers.anthropic import Anthropic

    wire.script(SPENT, answer(WHOLE["messages"]))
    with providers(wire.url):
        turn = agent_of(OPENAI, CLAUDE).start("Where?")
        with monkeypatch.context() as patched:
            patched.setattr(Anthropic, "call", die)
            with pytest.raises(Died):
                run_turn(turn.pk)
        turn = run_turn(expire_lease(turn).pk)
    assert turn.status == "completed" and asked_models(wire) == [OPENAI, CLAUDE]
    assert turn.steps.get().attempts == 3  # the one that died with its worker may have been sent


def die(*_: Any, **__: Any) -> None:
    raise Died


def test_the_cost_is_of_the_model_that_served_and_what_the_first_lost_is_presumed(wire: WireServer) -> None:
    lost: Answered = answer(WHOLE["responses"], cut_at=20)
    wire.script(*[lost] * 6, answer(WHOLE["messages"]))
    with providers(wire.url):
        turn = run_to_rest(agent_of(OPENAI, CLAUDE).start("Where?"))
    step = turn.steps.get()
    assert step.price_source.endswith(("anthropic/claude-sonnet-4-5", "anthropic/claude-sonnet-5"))
    assert turn.presumed_cost == step.presumed_cost > 0 and turn.cost == step.cost > 0


def test_scripted_models_take_over_from_each_other() -> None:
    first, second = ScriptedModel([]), ScriptedModel([reply("from the second")])
    turn = run_turn(Agent(name="tester", model=[first, second], instructions="…").start("go").pk)
    assert (turn.status, turn.answer) == ("completed", "from the second")
    second.assert_used()


WRONG = [
    ([], "model is an empty list; name at least one model"),
    ([OPENAI, OPENAI], "model has 'responses:gpt-4.1-mini' twice"),
    ([OPENAI, "gpt-5"], "model is 'gpt-5'; write it as 'alias:name'"),
]


@pytest.mark.parametrize(("models", "sentence"), WRONG)
def test_a_wrong_list_is_refused_where_it_is_declared(models: list[str], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        Agent(name="tester", model=models, instructions="…")


def test_an_agent_is_known_by_its_first_model() -> None:
    agent = Agent(name="tester", model=[OPENAI, CLAUDE], instructions="…")
    assert (agent.model_id, agent.model_ids) == (OPENAI, (OPENAI, CLAUDE))
