"""Sessions: one conversation with an agent each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import models

from agentturns.models.rows import Row

if TYPE_CHECKING:
    from agentturns.definitions.limits import Limits
    from agentturns.models.turn import Turn


class Session(Row):
    """One conversation with an agent; its turns run one at a time, in order.

    ``queue_policy``, where it is set, goes before the agent's for the turns sent from then on.
    """

    people_columns = ("tenant", "user", "user_name", "metadata", "queue_policy")

    agent = models.CharField(max_length=100)
    tenant = models.CharField(max_length=200, blank=True, default="")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    user_name = models.CharField(max_length=255, blank=True, default="")
    metadata = models.JSONField(default=dict, blank=True)
    queue_policy = models.CharField(max_length=20, blank=True, default="")
    active_turn = models.ForeignKey(
        "agentturns.Turn", null=True, blank=True, on_delete=models.SET_NULL, related_name="+", editable=False
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"session {self.pk} with {self.agent}"

    def send(
        self,
        input: str,
        *,
        context: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        key: str = "",
    ) -> Turn:
        """Send a message; the turn it became, or became part of. The same (agent, tenant, key) returns that turn.

        While a turn of the conversation is not over, its queue policy decides: ``followup`` queues the message behind
        it, ``collect`` adds it to a turn that has not begun, ``steer`` lets the turn see it at its next boundary,
        ``interrupt`` ends the turn first. A message with ``context`` or ``limits`` becomes a turn of its own.

        Raises ``ValueError`` for empty or too large input, ``TypeError`` for what is not text or not JSON.
        """
        from agentturns.models.turn import Turn

        return Turn.objects.follow(self, input=input, context=context, limits=limits, key=key)

    async def asend(self, input: str, **options: Any) -> Turn:
        """Async twin of :meth:`send`."""
        return await sync_to_async(self.send)(input, **options)
