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
    """One conversation with an agent; its turns run one at a time, in order."""

    people_columns = ("tenant", "user", "user_name", "metadata")

    agent = models.CharField(max_length=100)
    tenant = models.CharField(max_length=200, blank=True, default="")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    user_name = models.CharField(max_length=255, blank=True, default="")
    metadata = models.JSONField(default=dict, blank=True)
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
        """Queue the next turn of this conversation; the same (agent, tenant, key) returns the turn that exists.

        Raises ``ValueError`` for empty or too large input, ``TypeError`` for what is not text or not JSON.
        """
        from agentturns.models.turn import Turn

        return Turn.objects.follow(self, input=input, context=context, limits=limits, key=key)

    async def asend(self, input: str, **options: Any) -> Turn:
        """Async twin of :meth:`send`."""
        return await sync_to_async(self.send)(input, **options)
