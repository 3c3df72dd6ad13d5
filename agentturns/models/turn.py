"""Turns: one request each, run to its answer, with its budget and its place in the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from agentturns.definitions.limits import CAPS, CapValue
from agentturns.models.clock import UTCDateTimeField
from agentturns.models.exchange import exchange
from agentturns.models.explain import waiting_for
from agentturns.models.rows import Row
from agentturns.models.session import Session
from agentturns.models.states import BUDGET_REASONS, ParkReason, Status
from agentturns.models.turn_queryset import TurnManager
from agentturns.models.turn_verbs import TurnVerbs
from agentturns.money.budget import limit_for, spent_on
from agentturns.money.fields import NanoUSDField

if TYPE_CHECKING:
    from agentturns.models.step import Step
    from agentturns.models.tool_call import ToolCall


class Turn(TurnVerbs, Row):
    """One request to an agent, run to its answer.

    Tokens are whole numbers, ``cost`` and ``presumed_cost`` are USD as ``Decimal``, ``*_seconds`` are seconds. The
    snapshot (instructions, tools, model, wire) is taken when a worker first takes the turn up and never changes.
    ``message`` and ``flags`` are what middleware made of the input then; the model reads ``message``.
    """

    Status = Status
    ParkReason = ParkReason
    people_columns = ("tenant", "user", "user_name", "context")

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="turns")
    index = models.PositiveIntegerField()
    agent = models.CharField(max_length=100)
    tenant = models.CharField(max_length=200, blank=True, default="")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    user_name = models.CharField(max_length=255, blank=True, default="")
    context = models.JSONField(default=dict, blank=True)
    key = models.CharField(max_length=200, blank=True, default="")

    status = models.CharField(max_length=20, choices=Status.choices, default=Status.QUEUED)
    park_reason = models.CharField(max_length=30, choices=ParkReason.choices, blank=True, default="")
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    input = models.TextField()
    message = models.TextField(blank=True, default="")
    flags = models.JSONField(default=dict, blank=True)
    answer = models.TextField(blank=True, default="")

    instructions = models.TextField(blank=True, default="")
    tool_definitions = models.TextField(blank=True, default="")
    model = models.CharField(max_length=200)
    wire_flavour = models.CharField(max_length=30, blank=True, default="")
    request_options = models.TextField(blank=True, default="")
    queue_policy = models.CharField(max_length=20, blank=True, default="")

    limits = models.JSONField(default=dict, blank=True)
    budget_overrides = models.JSONField(default=dict, blank=True)

    step_count = models.PositiveIntegerField(default=0)
    tool_call_count = models.PositiveIntegerField(default=0)
    tool_calls_waiting = models.PositiveIntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    cached_input_tokens = models.BigIntegerField(default=0)
    cache_write_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    cost = NanoUSDField(default=0)
    presumed_cost = NanoUSDField(default=0)
    unpriced_steps = models.PositiveIntegerField(default=0)

    created_at = models.DateTimeField(auto_now_add=True)
    started_at = UTCDateTimeField(null=True, blank=True)
    active_since = UTCDateTimeField(null=True, blank=True)
    stretch_seconds = models.FloatField(default=0)
    active_seconds = models.FloatField(default=0)
    parked_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    lease_owner = models.CharField(max_length=100, blank=True, default="")
    lease_expires_at = UTCDateTimeField(null=True, blank=True)
    lease_renewed_at = UTCDateTimeField(null=True, blank=True)
    attempt = models.PositiveIntegerField(default=0)
    crashes = models.PositiveIntegerField(default=0)
    provider_failures = models.PositiveIntegerField(default=0)
    run_after = UTCDateTimeField(null=True, blank=True)
    messages_waiting = models.PositiveIntegerField(default=0)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    acted_by = models.CharField(max_length=255, blank=True, default="")
    acted_at = models.DateTimeField(null=True, blank=True)
    acted_reason = models.TextField(blank=True, default="")

    objects: ClassVar[Any] = TurnManager()

    if TYPE_CHECKING:
        session_id: int
        user_id: int | None
        steps: models.Manager[Step]
        tool_calls: models.Manager[ToolCall]

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["session", "index"], name="agentturns_turn_in_session"),
            models.UniqueConstraint(
                fields=["agent", "tenant", "key"], condition=~Q(key=""), name="agentturns_turn_once_per_key"
            ),
        )
        indexes = (
            models.Index(fields=["id"], condition=Q(status="queued"), name="agentturns_turn_claim"),
            models.Index(fields=["lease_expires_at"], condition=Q(status="running"), name="agentturns_turn_leases"),
            models.Index(fields=["parked_at", "id"], condition=Q(status="parked"), name="agentturns_turn_parked"),
            models.Index(
                fields=["session", "index"],
                condition=Q(status__in=["queued", "running", "parked"]),
                name="agentturns_turn_unfinished",
            ),
            models.Index(fields=["id"], condition=Q(unpriced_steps__gt=0), name="agentturns_turn_unpriced"),
            models.Index(F("tenant"), F("id").desc(), name="agentturns_turn_tenant"),
            models.Index(F("agent"), F("id").desc(), name="agentturns_turn_agent"),
            models.Index(F("created_at").desc(), F("id").desc(), name="agentturns_turn_newest"),
        )
        permissions = (
            ("raise_budget", "Can raise or lower a turn's budget"),
            ("cancel_turn", "Can cancel a turn"),
            ("retry_turn", "Can retry a turn"),
        )

    def __str__(self) -> str:
        return f"turn {self.pk} of {self.agent}"

    def spent(self, cap: str) -> CapValue:
        """What the turn has used of ``cap``: USD as ``Decimal``, tokens and counts as ``int``, seconds."""
        return spent_on(self, cap)

    def limit(self, cap: str) -> CapValue | None:
        """The limit of ``cap`` in force now, None where there is none."""
        if cap not in CAPS:
            raise ValueError(f"Unknown cap {cap!r}; the caps are {', '.join(CAPS)}.")
        return limit_for(self, cap)

    @property
    def budget_parked(self) -> bool:
        """Whether the turn is parked on a budget, so that ``raise_budget`` resumes it."""
        return self.status == Status.PARKED and self.park_reason in BUDGET_REASONS

    @property
    def is_finished(self) -> bool:
        """Whether the turn is completed, failed or canceled."""
        return self.status in Status.finished()

    @property
    def exchange(self) -> list[dict[str, Any]]:
        """The turn's own messages as people read them, see ``models/exchange.py``."""
        return exchange(self)

    @property
    def waiting_for(self) -> str:
        """One sentence: what the turn waits for, with the figure and what to do; "" when it waits for nothing."""
        return waiting_for(self)
