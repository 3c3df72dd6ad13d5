"""What the model of one turn sees, fixed when the turn is first taken up."""

from __future__ import annotations

import json
from typing import Any, Final

from agentturns.cleaning import clean_text, require_json
from agentturns.definitions.agent import Agent
from agentturns.definitions.state import TurnState
from agentturns.engine.candidates import snapshot_columns
from agentturns.models.turn import Turn

# What middleware may switch on for the whole turn.
FLAGS: Final = ("skip_side_effects", "requires_approval")


def take(agent: Agent, state: TurnState) -> dict[str, Any]:
    """The snapshot's columns. Raises ``ConfigurationError``, and whatever a callable ``instructions`` raises."""
    instructions = agent.instructions if isinstance(agent.instructions, str) else agent.instructions(state)
    if not isinstance(instructions, str):
        raise TypeError(f"instructions returned {type(instructions).__name__}, but they are text")
    return {
        "message": clean_text(state.message),
        "context": require_json(state.turn_context, "turn_context"),
        "flags": {name: True for name in FLAGS if getattr(state, name)},
        "instructions": clean_text(instructions),
        "tool_definitions": json.dumps([tool.definition() for tool in agent.tools], ensure_ascii=False),
        **snapshot_columns(agent.model_ids, {"max_reply_tokens": agent.max_reply_tokens}),
    }


def is_taken(turn: Turn) -> bool:
    """Whether the turn has its snapshot."""
    return bool(turn.wire_flavour)
