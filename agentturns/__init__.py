"""LLM agents inside your Django project: every turn is rows, every budget parks, every raise resumes.

Public names load on first use, so ``from agentturns import Agent`` works before Django's app registry is ready.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentturns.definitions.agent import Agent, get_agent
    from agentturns.definitions.limits import Limits
    from agentturns.definitions.state import TurnState
    from agentturns.definitions.tools import ApprovalRequest, Denied, Halt, Tool, ask_person, tool
    from agentturns.exceptions import (
        AgentTurnsError,
        ConfigurationError,
        Conflict,
        InvalidBudget,
        LeaseLost,
        ToolLimitExceeded,
    )
    from agentturns.models import BudgetChange, Message, Notice, Session, Step, ToolCall, Turn

__all__ = [
    "Agent",
    "AgentTurnsError",
    "ApprovalRequest",
    "BudgetChange",
    "ConfigurationError",
    "Conflict",
    "Denied",
    "Halt",
    "InvalidBudget",
    "LeaseLost",
    "Limits",
    "Message",
    "Notice",
    "Session",
    "Step",
    "Tool",
    "ToolCall",
    "ToolLimitExceeded",
    "Turn",
    "TurnState",
    "ask_person",
    "get_agent",
    "tool",
]

_HOMES = {
    "agentturns.definitions.agent": ("Agent", "get_agent"),
    "agentturns.definitions.limits": ("Limits",),
    "agentturns.definitions.state": ("TurnState",),
    "agentturns.definitions.tools": ("ApprovalRequest", "Denied", "Halt", "Tool", "ask_person", "tool"),
    "agentturns.exceptions": (
        "AgentTurnsError",
        "ConfigurationError",
        "Conflict",
        "InvalidBudget",
        "LeaseLost",
        "ToolLimitExceeded",
    ),
    "agentturns.models": ("BudgetChange", "Message", "Notice", "Session", "Step", "ToolCall", "Turn"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'agentturns' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
