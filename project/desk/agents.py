"""The desk's agents, found by every process at its start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from decimal import Decimal

from agentturns import Agent, Limits
from agentturns.providers.scripted import ScriptedModel
from project.desk.script import answer
from project.desk.tools import find_order, issue_refund, notify_customer

INSTRUCTIONS = """\
You work at the desk of a small shop and answer one request at a time.
Look the order up before anything else. Refund what the customer asks for, and never more than was paid; refunds above
£25.00 are approved by a person, so just ask for them. After a refund, or where you are told to, send the customer one
e-mail. Then answer in one or two sentences. All amounts that tools take and return are in pence."""

SCRIPT = ScriptedModel(answer, name="desk")


def model_for(environment: Mapping[str, str]) -> str:
    """A real model where a key for one is in the environment, else the scripted one, which needs none."""
    if environment.get("OPENAI_API_KEY"):
        return "openai:gpt-5-mini"
    if environment.get("ANTHROPIC_API_KEY"):
        return "anthropic:claude-sonnet-5"
    return SCRIPT.model_id


def _desk(name: str, model: str) -> Agent:
    return Agent(
        name=name,
        model=model,
        instructions=INSTRUCTIONS,
        tools=[find_order, issue_refund, notify_customer],
        # Small on purpose: the scripted model passes it with its second step.
        limits=Limits(max_cost=Decimal("0.05"), max_steps=12, timeout=300),
        max_reply_tokens=4_000,
    )


desk = _desk("desk", model_for(os.environ))
# The demo shows states that a real model cannot be relied on to reach.
rehearsal = _desk("desk-rehearsal", SCRIPT.model_id)
