"""The words for where a turn, a step and a tool call stand."""

from __future__ import annotations

from typing import Final

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

from agentturns.definitions.limits import CAPS


class Status(TextChoices):
    """Where a turn stands."""

    QUEUED = "queued", _("queued")
    RUNNING = "running", _("running")
    PARKED = "parked", _("parked")
    COMPLETED = "completed", _("completed")
    FAILED = "failed", _("failed")
    CANCELED = "canceled", _("canceled")

    @classmethod
    def finished(cls) -> tuple[str, ...]:
        """The states that end a turn."""
        return (cls.COMPLETED, cls.FAILED, cls.CANCELED)

    @classmethod
    def unfinished(cls) -> tuple[str, ...]:
        """The states in which a later turn of the session must wait."""
        return (cls.QUEUED, cls.RUNNING, cls.PARKED)


class ParkReason(TextChoices):
    """Why a turn is parked. The budget reasons bear the name of the cap."""

    MAX_INPUT_TOKENS = "max_input_tokens", _("input tokens used up")
    MAX_NEW_INPUT_TOKENS = "max_new_input_tokens", _("new input tokens used up")
    MAX_OUTPUT_TOKENS = "max_output_tokens", _("output tokens used up")
    MAX_COST = "max_cost", _("cost limit reached")
    TIMEOUT = "timeout", _("time used up")
    MAX_TOOL_CALLS = "max_tool_calls", _("tool calls used up")
    MAX_STEPS = "max_steps", _("steps used up")
    UNPRICED = "unpriced", _("price unknown")
    APPROVAL = "approval", _("waits for approval")
    QUESTION = "question", _("waits for an answer")
    IN_DOUBT = "in_doubt", _("a call is in doubt")
    APPROVAL_EXPIRED = "approval_expired", _("approval expired")
    PROVIDER_ERROR = "provider_error", _("model provider error")
    TOOL_LOOP = "tool_loop", _("repeats the same call")
    CRASH_LOOP = "crash_loop", _("its worker keeps dying")
    AGENT_MISSING = "agent_missing", _("agent not declared")


BUDGET_REASONS: Final = frozenset({*CAPS, ParkReason.UNPRICED.value})
DECISION_REASONS: Final = frozenset({ParkReason.APPROVAL.value, ParkReason.QUESTION.value, ParkReason.IN_DOUBT.value})
# A person's retry leads out of these.
RETRY_REASONS: Final = frozenset(
    reason.value
    for reason in (
        ParkReason.PROVIDER_ERROR,
        ParkReason.CRASH_LOOP,
        ParkReason.AGENT_MISSING,
        ParkReason.TOOL_LOOP,
        ParkReason.APPROVAL_EXPIRED,
    )
)


class StepStatus(TextChoices):
    """Whether a model call has its reply."""

    STARTED = "started", _("started")
    COMPLETED = "completed", _("completed")


class CallStatus(TextChoices):
    """What became of a tool call."""

    PENDING = "pending", _("pending")
    STARTED = "started", _("started")
    COMPLETED = "completed", _("completed")
    FAILED = "failed", _("failed")
    REFUSED = "refused", _("refused")
    IN_DOUBT = "in_doubt", _("in doubt")

    @classmethod
    def open(cls) -> tuple[str, ...]:
        """The states in which the call has no output for the model yet."""
        return (cls.PENDING, cls.STARTED, cls.IN_DOUBT)


class Approval(TextChoices):
    """Where a call stands with people; empty when nobody was asked."""

    REQUIRED = "required", _("required")
    APPROVED = "approved", _("approved")
    DECLINED = "declined", _("declined")
    ANSWERED = "answered", _("answered")
    EXPIRED = "expired", _("expired")
