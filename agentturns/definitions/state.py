"""What a running turn knows: handed to tools, gates and instructions, alive only while a worker runs the turn."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

current_tool_call: ContextVar[Any] = ContextVar("agentturns_current_tool_call", default=None)
current_tool_name: ContextVar[str] = ContextVar("agentturns_current_tool_name", default="")


@dataclass(slots=True)
class TurnState:
    """The running turn as its tools see it. Fields may be changed; nothing here is stored by itself.

    ``turn`` and ``session`` are rows; ``tenant``, ``user`` and ``turn_context`` come from whoever started the turn,
    never from the model. ``resumed`` is True on every claim but the first. ``baseline`` is the number of messages of
    history before this turn's own, None before the first model call. ``usage`` is a dict of tokens and USD so far.
    """

    turn: Any
    session: Any
    tenant: str = ""
    user: Any = None
    turn_context: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    profile: Any = None
    resumed: bool = False
    usage: dict[str, Any] = field(default_factory=dict)
    baseline: int | None = None
    queue_policy: str = ""
    capability_names: tuple[str, ...] = ()
    skip_side_effects: bool = False
    requires_approval: bool = False
    approval_coordinator: Any = None
    inbox: list[Any] = field(default_factory=list)
    tool_gate: Callable[..., Any] | None = None
    requested_tool_concurrency: int | None = None
    tool_concurrency: int | None = None
    halt_reason: str = ""
    halt_response: str | None = None

    @property
    def current_tool_call(self) -> Any:
        """The ToolCall row being run in this context, else None. Its pk is the key to give outside systems."""
        return current_tool_call.get()

    @property
    def current_tool_name(self) -> str:
        """The name of the tool being run in this context, else ""."""
        return current_tool_name.get()
