"""Steps: one model call of a turn each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models
from django.db.models import F

from agentturns.models.rows import Row
from agentturns.models.states import StepStatus
from agentturns.models.turn import Turn
from agentturns.money.fields import NanoUSDField

if TYPE_CHECKING:
    from agentturns.models.tool_call import ToolCall


class Step(Row):
    """One model call of a turn, with what it used and what it cost.

    ``model`` is the one that served, as the provider names it, once there is a reply; ``requested_model`` the one asked
    for. Tokens are NULL where the provider did not say; ``cache_write_1h_tokens`` are the part of
    ``cache_write_tokens`` that is priced for an hour. ``cost`` is USD, NULL where no price is known (never 0 for that).
    ``presumed_cost`` is USD presumed for attempts whose reply was lost or carried no usage. ``estimate`` is the USD
    reckoned before the call. ``attempts`` counts requests sent, lost ones included.
    """

    Status = StepStatus

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="steps")
    index = models.PositiveIntegerField()
    status = models.CharField(max_length=20, choices=StepStatus.choices, default=StepStatus.STARTED)
    attempts = models.PositiveIntegerField(default=1)
    model = models.CharField(max_length=200)
    requested_model = models.CharField(max_length=200, blank=True, default="")
    provider = models.CharField(max_length=60)
    wire = models.TextField(blank=True, default="")
    output = models.JSONField(default=list, blank=True)
    stop_reason = models.CharField(max_length=60, blank=True, default="")
    terminal = models.BooleanField(default=False)
    input_tokens = models.BigIntegerField(null=True, blank=True)
    cached_input_tokens = models.BigIntegerField(null=True, blank=True)
    cache_write_tokens = models.BigIntegerField(null=True, blank=True)
    cache_write_1h_tokens = models.BigIntegerField(null=True, blank=True)
    output_tokens = models.BigIntegerField(null=True, blank=True)
    reasoning_tokens = models.BigIntegerField(null=True, blank=True)
    cost = NanoUSDField(null=True, blank=True)
    presumed_cost = NanoUSDField(default=0)
    price_source = models.CharField(max_length=200, blank=True, default="")
    estimate = NanoUSDField(null=True, blank=True)
    estimated_input_tokens = models.BigIntegerField(null=True, blank=True)
    output_limit = models.PositiveIntegerField(null=True, blank=True)
    request_id = models.CharField(max_length=200, blank=True, default="")
    error = models.TextField(blank=True, default="")
    started_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True, blank=True)

    if TYPE_CHECKING:
        turn_id: int
        tool_calls: models.Manager[ToolCall]

    class Meta:
        constraints = (models.UniqueConstraint(fields=["turn", "index"], name="agentturns_step_in_turn"),)
        indexes = (models.Index(F("started_at").desc(), name="agentturns_step_newest"),)

    def __str__(self) -> str:
        return f"step {self.index} of turn {self.turn_id}"

    @property
    def priced(self) -> bool:
        """Whether the step's cost, known or presumed, rests on a price; False shows as "unpriced"."""
        return self.cost is not None or self.price_source != ""
