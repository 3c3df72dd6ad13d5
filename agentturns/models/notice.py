"""Notices: what a turn's model was told about its budget, kept so that it is told once."""

from __future__ import annotations

from django.db import models

from agentturns.models.rows import Row
from agentturns.models.turn import Turn


class Notice(Row):
    """A sentence the model sees after a batch of tool results, stored as it was worded."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="notices")
    after_step = models.PositiveIntegerField()
    kind = models.CharField(max_length=30)
    cap = models.CharField(max_length=30, blank=True, default="")
    limit_value = models.CharField(max_length=40, blank=True, default="")
    threshold = models.CharField(max_length=40, blank=True, default="")
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["turn", "kind", "cap", "limit_value", "threshold"], name="agentturns_notice_once"
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} notice after step {self.after_step}"
