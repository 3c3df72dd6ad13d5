"""Messages: what was sent to a session while a turn of it was not over, and became part of that turn."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agentturns.models.rows import Row
from agentturns.models.session import Session
from agentturns.models.turn import Turn


class Message(Row):
    """A message taken into a turn that stood when it arrived.

    ``kind`` is ``steer`` or ``collect``. ``after_step`` is the step after which the model saw it (0 for the turn's
    beginning), NULL as long as it waits for the next boundary. A message still waiting when its turn ends becomes a
    turn of its own.
    """

    class Kind(models.TextChoices):
        """How the message enters its turn."""

        STEER = "steer"
        COLLECT = "collect"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="messages")
    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="messages")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    key = models.CharField(max_length=200, blank=True, default="")
    text = models.TextField()
    after_step = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["session", "key"], condition=~Q(key=""), name="agentturns_message_once_per_key"
            ),
        )
        indexes = (
            models.Index(
                fields=["turn", "id"], condition=Q(after_step__isnull=True), name="agentturns_message_waiting"
            ),
        )

    def __str__(self) -> str:
        return f"message {self.pk} to turn {self.turn_id}"
