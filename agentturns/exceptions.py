"""Everything agentturns raises on purpose.

::

    AgentTurnsError
    ├── ConfigurationError   a declaration or a setting is wrong
    ├── Conflict             somebody else was first, or the row is in another state
    ├── InvalidBudget        a cap's new value is refused (also a ValidationError)
    ├── LeaseLost            this worker no longer holds the turn
    └── ToolLimitExceeded    a turn asked for more tool calls than its limit
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from django.core.exceptions import ValidationError


class AgentTurnsError(Exception):
    """The base of every error that agentturns raises on purpose."""


class ConfigurationError(AgentTurnsError):
    """An agent, a tool, a limit or a setting is declared wrongly; the message names it and the way out."""


class Conflict(AgentTurnsError):
    """The row was changed by somebody else first, or is in a state that does not allow this.

    ``status`` is the state found, ``by`` the name of who brought it there ("" when unknown), ``at`` when
    (None when unknown). Nothing was changed.
    """

    def __init__(self, message: str, *, status: str = "", by: str = "", at: datetime | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.by = by
        self.at = at


class InvalidBudget(AgentTurnsError, ValidationError):
    """A new cap was refused. ``cap``, ``value``, ``spent`` and ``limit`` say what was asked and what stands.

    Money is USD as ``Decimal``; tokens and calls are ``int``; ``timeout`` is seconds. Nothing was changed.
    """

    def __init__(
        self,
        message: str,
        *,
        cap: str = "",
        value: object = None,
        spent: Decimal | int | float | None = None,
        limit: Decimal | int | float | None = None,
    ) -> None:
        ValidationError.__init__(self, message, code="invalid_budget")
        self.cap = cap
        self.value = value
        self.spent = spent
        self.limit = limit

    def __str__(self) -> str:
        return str(self.message)


class LeaseLost(AgentTurnsError):
    """This worker's claim on the turn has ended; another may hold it, so it must write nothing more."""


class ToolLimitExceeded(AgentTurnsError):
    """A turn asked for more tool calls than ``max_tool_calls`` allows."""
