"""Budget changes: every raise and lowering of a turn's caps, by whom and why."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from agentturns.models.rows import Row
from agentturns.models.turn import Turn


class BudgetChange(Row):
    """One cap of one turn moved from ``old`` to ``new`` (as text; "" for no limit)."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="budget_changes")
    cap = models.CharField(max_length=30)
    old = models.CharField(max_length=40, blank=True, default="")
    new = models.CharField(max_length=40)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    by_name = models.CharField(max_length=255, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    at = models.DateTimeField()

    class Meta:
        indexes = (models.Index(fields=["turn", "at"], name="agentturns_change_of_turn"),)

    def __str__(self) -> str:
        return f"{self.cap} {self.old or 'none'} → {self.new}"
