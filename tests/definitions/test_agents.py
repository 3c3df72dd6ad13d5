"""Agents as they are declared: registered once, found by name, refused with a sentence where they are wrong."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agentturns import Agent, ConfigurationError, Limits, get_agent, tool
from agentturns.definitions.agent import registered_agents
from agentturns.providers.scripted import ScriptedModel


@tool
def look(what: str) -> str:
    """Look."""
    return what


@tool(name="look")
def another_look(what: str) -> str:
    """Look again."""
    return what


def plain(what: str) -> str:
    """Look."""
    return what


def declare(**changed: Any) -> Agent:
    return Agent(**{"name": "tester", "model": "openai:gpt-5-mini", "instructions": "Be brief.", **changed})


def test_an_agent_is_registered_as_soon_as_it_is_made() -> None:
    agent = declare()
    assert get_agent("tester") is agent
    assert registered_agents()["tester"] is agent


def test_two_agents_of_one_name_are_refused_and_the_first_stays() -> None:
    first = declare()
    with pytest.raises(ConfigurationError) as refused:
        declare(model="openai:another")
    assert str(refused.value) == "Two agents are named 'tester'; names are unique, so rename one of them."
    assert get_agent("tester") is first


def test_an_agent_that_is_refused_leaves_its_name_free() -> None:
    with pytest.raises(ConfigurationError):
        declare(model="nonsense")
    assert "tester" not in registered_agents()


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    declare()
    with pytest.raises(ConfigurationError) as refused:
        get_agent("tister")
    assert "No agent is named 'tister' (registered: " in str(refused.value)
    assert "tester" in str(refused.value)
    assert str(refused.value).endswith("declare it in an installed app's agents.py.")


MODEL = "write it as 'alias:name', such as 'anthropic:claude-sonnet-5'."


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": ""}, "Agent '': a name is text of 1 to 100 characters."),
        ({"name": "  "}, "a name is text of 1 to 100 characters."),
        ({"name": "x" * 101}, "a name is text of 1 to 100 characters."),
        ({"name": None}, "Agent None: a name is text of 1 to 100 characters."),
        ({"model": "gpt-5-mini"}, f"Agent 'tester': model is 'gpt-5-mini'; {MODEL}"),
        ({"model": ":gpt-5-mini"}, f"model is ':gpt-5-mini'; {MODEL}"),
        ({"model": "openai:"}, f"model is 'openai:'; {MODEL}"),
        ({"model": None}, f"model is None; {MODEL}"),
        (
            {"instructions": None},
            "Agent 'tester': instructions are text, or a function of the TurnState returning text.",
        ),
        ({"tools": [plain]}, "is not a tool; put @tool above the function."),
        (
            {"tools": [look, another_look]},
            "Agent 'tester' has two tools named 'look'; pass name='…' to one of them.",
        ),
        (
            {"tool_concurrency": 0},
            "Agent 'tester': tool_concurrency is 0; it is a whole number above 0, or None.",
        ),
        ({"tool_concurrency": True}, "tool_concurrency is True; it is a whole number above 0, or None."),
        ({"max_reply_tokens": 1.5}, "max_reply_tokens is 1.5; it is a whole number above 0, or None."),
        (
            {"queue_policy": "later"},
            "Agent 'tester': queue_policy is 'later'; it is one of followup, collect, steer, interrupt.",
        ),
        ({"limits": 3}, "limits is 3; pass Limits(…) or a mapping of its arguments."),
        ({"limits": {"max_cost": 0.5}}, "Limits: max_cost=0.5 is a float, but money is a Decimal, int or text"),
    ],
)
def test_a_wrong_declaration_is_refused_with_a_sentence(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        declare(**changed)
    assert said in str(refused.value)


def test_a_model_may_be_text_or_a_scripted_model() -> None:
    assert declare().model_id == "openai:gpt-5-mini"
    model = ScriptedModel(["hello"], name="greeter")
    assert declare(name="second", model=model).model_id == "scripted:greeter"


def test_tools_are_found_by_the_name_the_model_uses() -> None:
    agent = declare(tools=[another_look])
    assert agent.tool_named("look") is another_look
    assert agent.tool_named("another_look") is None


def test_an_override_lasts_for_its_block_and_holds_in_every_thread() -> None:
    agent = declare(limits=Limits(max_steps=5))
    seen: list[tuple[str, Any]] = []
    with agent.override(model="scripted:other", limits=Limits(max_steps=1)) as same:
        assert same is agent
        watcher = threading.Thread(target=lambda: seen.append((agent.model_id, agent.limits.max_steps)))
        watcher.start()
        watcher.join()
    assert seen == [("scripted:other", 1)]
    assert (agent.model_id, agent.limits.max_steps) == ("openai:gpt-5-mini", 5)


def test_an_override_ends_with_an_error_and_refuses_a_wrong_model() -> None:
    agent = declare()
    with pytest.raises(RuntimeError), agent.override(model="scripted:other"):
        raise RuntimeError
    assert agent.model_id == "openai:gpt-5-mini"
    with pytest.raises(ConfigurationError, match="model is 'nonsense'"), agent.override(model="nonsense"):
        pass
    assert agent.model_id == "openai:gpt-5-mini"
