"""The rows and their transitions."""

from agentturns.models.budget_change import BudgetChange
from agentturns.models.message import Message
from agentturns.models.notice import Notice
from agentturns.models.price import Price
from agentturns.models.session import Session
from agentturns.models.step import Step
from agentturns.models.sweep_mark import SweepMark
from agentturns.models.tool_call import ToolCall
from agentturns.models.turn import Turn

__all__ = ["BudgetChange", "Message", "Notice", "Price", "Session", "Step", "SweepMark", "ToolCall", "Turn"]
