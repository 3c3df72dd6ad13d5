"""Tool calls: one tool request of a step each, with its effect and its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from agentturns.models.call_verbs import CallVerbs
from agentturns.models.rows import Row, RowManager
from agentturns.models.states import Approval, CallStatus
from agentturns.models.step import Step
from agentturns.models.turn import Turn

OPEN_DECISION = Q(status=CallStatus.PENDING, approval=Approval.REQUIRED) | Q(status=CallStatus.IN_DOUBT)


class ToolCallQuerySet(models.QuerySet["ToolCall"]):
    """Tool calls by what they wait for."""

    def awaiting_decision(self) -> ToolCallQuerySet:
        """Calls that a person must decide, oldest first."""
        return self.filter(OPEN_DECISION).order_by("id")

    def open(self) -> ToolCallQuerySet:
        """Calls that have no output for the model yet."""
        return self.filter(status__in=CallStatus.open())


class ToolCallManager(RowManager.from_queryset(ToolCallQuerySet)):  # type: ignore[misc]  # a class made at run time
    """Entry to tool calls."""


class ToolCall(CallVerbs, Row):
    """One tool request of a step.

    ``arguments`` are the validated arguments as JSON, ``raw_arguments`` the text as the model wrote it.
    ``output_text`` is exactly what the model sees. ``taken_up_at`` is set when the call counts against
    ``max_tool_calls``; ``gated_at`` when its approval gate was asked, which happens once. ``halts`` marks a call whose
    completion ends the turn, with ``output_text`` as its answer. ``is_question`` marks a call that a person answers
    instead of its being run; ``repeat_allowed`` one that a person let run although it repeats earlier ones.
    """

    Status = CallStatus
    Approval = Approval
    people_columns = ("note",)

    step = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="tool_calls")
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="tool_calls")
    position = models.PositiveIntegerField()
    call_id = models.CharField(max_length=200, blank=True, default="")
    name = models.CharField(max_length=200)
    arguments = models.JSONField(default=dict, blank=True)
    arguments_hash = models.CharField(max_length=64, blank=True, default="")
    raw_arguments = models.TextField(blank=True, default="")
    effect = models.CharField(max_length=20, blank=True, default="")
    status = models.CharField(max_length=20, choices=CallStatus.choices, default=CallStatus.PENDING)
    run_token = models.CharField(max_length=32, blank=True, default="")
    result = models.JSONField(null=True, blank=True)
    output_text = models.TextField(blank=True, default="")
    error = models.TextField(blank=True, default="")
    halts = models.BooleanField(default=False)
    is_question = models.BooleanField(default=False)
    repeat_allowed = models.BooleanField(default=False)
    approval = models.CharField(max_length=20, choices=Approval.choices, blank=True, default="")
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    decided_by_name = models.CharField(max_length=255, blank=True, default="")
    decided_at = models.DateTimeField(null=True, blank=True)
    note = models.TextField(blank=True, default="")
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    taken_up_at = models.DateTimeField(null=True, blank=True)
    gated_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[Any] = ToolCallManager()

    if TYPE_CHECKING:
        turn_id: int
        step_id: int

    class Meta:
        constraints = (models.UniqueConstraint(fields=["step", "position"], name="agentturns_call_in_step"),)
        indexes = (
            models.Index(
                fields=["turn", "position"],
                condition=Q(status__in=["pending", "started", "in_doubt"]),
                name="agentturns_call_open",
            ),
            models.Index(fields=["id"], condition=OPEN_DECISION, name="agentturns_call_to_decide"),
            models.Index(
                fields=["expires_at"], condition=Q(status="pending", approval="required"), name="agentturns_call_expiry"
            ),
        )
        permissions = (("decide_toolcall", "Can decide a tool call"),)

    def __str__(self) -> str:
        return f"call {self.pk} of {self.name} in turn {self.turn_id}"

    @property
    def awaits_decision(self) -> bool:
        """Whether a person must decide this call."""
        return self.status == CallStatus.IN_DOUBT or (
            self.status == CallStatus.PENDING and self.approval == Approval.REQUIRED
        )
