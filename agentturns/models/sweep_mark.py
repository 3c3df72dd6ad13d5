"""The one row that lets only one worker of a database sweep at a time."""

from __future__ import annotations

from django.db import models

from agentturns.models.clock import UTCDateTimeField
from agentturns.models.rows import Row


class SweepMark(Row):
    """When the rows were last swept; moved on by compare-and-swap, so that one worker in an interval sweeps."""

    name = models.CharField(max_length=30, primary_key=True)
    swept_at = UTCDateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name
