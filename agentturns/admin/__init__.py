"""What an operator sees: turns, their calls and sessions, in Django's own admin.

The classes register on the default site when Django discovers this package. For a site of your own, register them
there: ``my_site.register(Turn, TurnAdmin)``; each may be subclassed.
"""

from django.contrib import admin

from agentturns.admin.budget_changes import BudgetChangeAdmin
from agentturns.admin.calls import ToolCallAdmin
from agentturns.admin.prices import PriceAdmin
from agentturns.admin.sessions import SessionAdmin
from agentturns.admin.steps import StepAdmin
from agentturns.admin.turns import TurnAdmin
from agentturns.models import BudgetChange, Price, Session, Step, ToolCall, Turn

__all__ = ["BudgetChangeAdmin", "PriceAdmin", "SessionAdmin", "StepAdmin", "ToolCallAdmin", "TurnAdmin"]

admin.site.register(Turn, TurnAdmin)
admin.site.register(ToolCall, ToolCallAdmin)
admin.site.register(Session, SessionAdmin)
admin.site.register(Step, StepAdmin)
admin.site.register(BudgetChange, BudgetChangeAdmin)
admin.site.register(Price, PriceAdmin)
