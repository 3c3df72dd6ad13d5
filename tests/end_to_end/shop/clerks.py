"""The shop's agents, declared by a function: a test declares them in its own process too, for as long as it runs."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from agentturns import Agent, Limits
from tests.end_to_end.shop.tools import issue_refund, look_up, send_letter

MODELS: Final = {
    "chat": "chat:gpt-5-mini",
    "responses": "responses:gpt-5-mini",
    "messages": "messages:claude-haiku-4-5",
}


def declare_clerks() -> dict[str, Agent]:
    """One clerk for each wire; the provider aliases are named as the wires are."""
    return {
        wire: Agent(
            name=f"clerk over {wire}",
            model=model,
            instructions="You are a shop's clerk.",
            tools=[look_up, issue_refund, send_letter],
            limits=Limits(max_cost=Decimal("0.01")),
        )
        for wire, model in MODELS.items()
    }
