"""Turns that stop for a decision: tools that ask or die, and what the model read in the end."""

from __future__ import annotations

from typing import Any

from agentturns import Agent, ToolCall, Turn, TurnState, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply
from tests.lost_workers import Died, run_until_death

runs: list[str] = []
resumed: list[bool] = []


def run_or_die(text: str) -> str:
    """Remember the run; the first one for "boom" ends the worker."""
    runs.append(text)
    if text == "boom" and runs.count("boom") == 1:
        raise Died
    return f"did {text}"


@tool(effect="idempotent", approval="always")
def pay(text: str) -> str:
    """Pay."""
    return run_or_die(text)


@tool(effect="idempotent")
def note(text: str, state: TurnState) -> str:
    """Note a text."""
    resumed.append(state.resumed)
    return run_or_die(text)


@tool(effect="at_most_once")
def send(text: str) -> str:
    """Send."""
    return run_or_die(text)


@tool(effect="at_most_once", approval="always")
def wire(text: str) -> str:
    """Wire."""
    return run_or_die(text)


def asks(*calls: tuple[str, str]) -> Any:
    return reply(tool_calls=[(name, {"text": text}) for name, text in calls])


def start(*script: Any) -> tuple[Turn, ScriptedModel]:
    model = ScriptedModel([*script, reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[pay, note, send, wire])
    return agent.start("go"), model


def parked(*calls: tuple[str, str]) -> tuple[Turn, ToolCall, ScriptedModel]:
    """A turn parked on a decision about the first of these calls."""
    turn, model = start(asks(*calls))
    turn = run_turn(turn.pk)
    assert turn.status == "parked"
    return turn, turn.tool_calls.get(position=0), model


def doubtful(*calls: tuple[str, str]) -> tuple[Turn, ToolCall, ScriptedModel]:
    """A turn whose worker died in the call about "boom", parked by the next worker."""
    turn, model = start(asks(*calls))
    turn = run_turn(run_until_death(turn).pk)
    assert (turn.status, turn.park_reason) == ("parked", "in_doubt")
    return turn, turn.tool_calls.get(status="in_doubt"), model


def told(model: ScriptedModel) -> list[tuple[str, bool]]:
    """What the model read as the results of its first reply."""
    return [(said["content"], said["is_error"]) for said in model.requests[1].messages if said["role"] == "tool"]
