"""Agents for worker processes under test, made in each of them by import."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from agentturns import Agent, Limits, tool
from agentturns.testing import ScriptedModel, reply

STEP_SECONDS = 0.05
ENDLESS = Limits(max_steps=100_000)


@tool(effect="idempotent", timeout=0.3)
def hang() -> str:
    """Hang."""
    time.sleep(600)
    return "never"


@tool(effect="idempotent")
def what_is_loaded() -> list[str]:
    """Name the SDKs that are in memory."""
    return sorted({"openai", "anthropic"} & sys.modules.keys())


@tool(effect="transactional")
def walk(n: int) -> int:
    """Take a step."""
    return n


def _asks(name: str, *, times: int = 1) -> Any:
    """A script that asks for a tool so many times and then answers."""

    def speak(request: Any) -> Any:
        asked = sum(message["role"] == "assistant" for message in request.messages)
        if asked >= times:
            return f"done by {os.getpid()}"
        return reply(tool_calls=[(name, {"n": asked} if name == "walk" else {})], delay=STEP_SECONDS)

    return speak


def _long_call(request: Any) -> Any:
    Path(os.environ["SHOP_INSIDE"]).touch()
    return reply("done", delay=600)


walker = Agent(
    name="walker",
    model=ScriptedModel(_asks("walk", times=50_000), name="walker"),
    instructions="…",
    tools=[walk],
    limits=ENDLESS,
)
quick = Agent(name="quick", model=ScriptedModel(lambda request: "done", name="quick"), instructions="…")
stuck = Agent(name="stuck", model=ScriptedModel(_asks("hang"), name="stuck"), instructions="…", tools=[hang])
inside = Agent(name="inside", model=ScriptedModel(_long_call, name="inside"), instructions="…")
loaded = Agent(
    name="loaded",
    model=ScriptedModel(_asks("what_is_loaded"), name="loaded"),
    instructions="…",
    tools=[what_is_loaded],
)
