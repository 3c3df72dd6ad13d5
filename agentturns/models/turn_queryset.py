"""Turns by where they stand, and what they cost."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Count, Exists, F, OuterRef, Q, Sum
from django.db.models.functions import TruncDate

from agentturns.models.clock import database_now
from agentturns.models.rows import RowManager
from agentturns.models.states import BUDGET_REASONS, ParkReason, Status, StepStatus

if TYPE_CHECKING:
    from agentturns.models.session import Session
    from agentturns.models.turn import Turn

_TOKENS = ("input_tokens", "cached_input_tokens", "output_tokens")
_FIGURES = ("turns", "steps", *_TOKENS, "cost", "presumed_cost", "unpriced_steps")
_GROUPS = {
    "agent": F("turn__agent"),
    "tenant": F("turn__tenant"),
    "model": F("model"),
    "day": TruncDate("started_at"),
}


class TurnQuerySet(models.QuerySet["Turn"]):
    """Turns by where they stand, and what they cost."""

    def queued(self) -> TurnQuerySet:
        """Turns that wait for a worker, for a back-off to pass or for an earlier turn of their session."""
        return self.filter(status=Status.QUEUED)

    def running(self) -> TurnQuerySet:
        """Turns that a worker holds, or held when it died."""
        return self.filter(status=Status.RUNNING)

    def parked(self, reason: str | None = None) -> TurnQuerySet:
        """Parked turns, of one ``park_reason`` where it is given."""
        if reason is not None and reason not in ParkReason.values:
            raise ValueError(f"No turn parks for {reason!r}; the reasons are {', '.join(ParkReason.values)}.")
        parked = self.filter(status=Status.PARKED)
        return parked if reason is None else parked.filter(park_reason=reason)

    def budget_parked(self) -> TurnQuerySet:
        """Turns that ``raise_budget`` resumes."""
        return self.filter(status=Status.PARKED, park_reason__in=BUDGET_REASONS)

    def finished(self) -> TurnQuerySet:
        """Turns that are completed, failed or canceled."""
        return self.filter(status__in=Status.finished())

    def needs_attention(self) -> TurnQuerySet:
        """Turns that only a person can move on, longest parked first."""
        return self.filter(status=Status.PARKED).order_by("parked_at", "id")

    def for_tenant(self, tenant: str) -> TurnQuerySet:
        """Turns of one tenant."""
        return self.filter(tenant=tenant)

    def ready(self) -> TurnQuerySet:
        """Queued turns whose wait has passed and that are next in their session."""
        from agentturns.models.turn import Turn

        earlier = Turn.objects.filter(
            session=OuterRef("session"), index__lt=OuterRef("index"), status__in=Status.unfinished()
        )
        return self.filter(
            ~Exists(earlier),
            Q(run_after__isnull=True) | Q(run_after__lte=database_now()),
            status=Status.QUEUED,
            session__active_turn__isnull=True,
        )

    def abandoned(self) -> TurnQuerySet:
        """Running turns whose worker let the lease expire."""
        return self.filter(status=Status.RUNNING, lease_expires_at__lt=database_now())

    def runnable(self) -> TurnQuerySet:
        """Turns that a worker may take up now: ready ones, and those that a dead worker left."""
        return self.filter(Q(pk__in=self.ready().values("pk")) | Q(pk__in=self.abandoned().values("pk")))

    def spend(self) -> dict[str, Any]:
        """What these turns used: turns, steps, tokens, and ``cost`` and ``presumed_cost`` in USD."""
        from agentturns.models.turn import Turn

        return _figures(
            Turn.objects.using(self.db)
            .filter(pk__in=self._ids())
            .aggregate(
                turns=Count("pk"),
                steps=Sum("step_count"),
                **{name: Sum(name) for name in _TOKENS},
                **_money(),
                unpriced_steps=Sum("unpriced_steps"),
            )
        )

    def spend_by(self, group: str, *more: str) -> list[dict[str, Any]]:
        """The same figures from step rows, grouped by ``agent``, ``tenant``, ``model`` or ``day``, or several of them.

        Each dict also has each group under its own name; a day is a ``date`` in the current time zone. A turn counts
        in each group in which it made a step.
        """
        from agentturns.models.step import Step

        groups = (group, *more)
        wrong = next((group for group in groups if group not in _GROUPS), None)
        if wrong is not None:
            raise ValueError(f"Cannot group spend by {wrong!r}; it is one of {', '.join(_GROUPS)}.")
        keys = {f"group_{group}": _GROUPS[group] for group in groups}
        unpriced = Q(status=StepStatus.COMPLETED, cost__isnull=True, price_source="")
        rows = (
            Step.objects.using(self.db)
            .filter(turn__in=self._ids())
            .values(**keys)
            # First what looks at the cost of each step: after the sum, "cost" means the sum.
            .annotate(unpriced_steps=Count("pk", filter=unpriced))
            .annotate(
                turns=Count("turn", distinct=True),
                steps=Count("pk"),
                **{name: Sum(name) for name in _TOKENS},
                **_money(),
            )
            .order_by(*keys)
        )
        return [{**{group: row.pop(f"group_{group}") for group in groups}, **_figures(row)} for row in rows]

    def _ids(self) -> models.QuerySet[Any, Any]:
        """These turns, each once, whatever joins, order or slice the query has."""
        return (self if self.query.is_sliced else self.order_by()).values("pk")


def _money() -> dict[str, Sum]:
    return {"cost": Sum("cost"), "presumed_cost": Sum("presumed_cost")}


def _figures(row: dict[str, Any]) -> dict[str, Any]:
    empty = {"cost": Decimal(0), "presumed_cost": Decimal(0)}
    return {name: empty.get(name, 0) if row[name] is None else row[name] for name in _FIGURES}


class TurnManager(RowManager.from_queryset(TurnQuerySet)):  # type: ignore[misc]  # a class made at run time
    """Entry to turns; ``open`` and ``follow`` are behind ``Agent.start`` and ``Session.send``."""

    def open(self, **request: Any) -> Turn:
        """Open a session and queue its first turn, see ``Agent.start``."""
        from agentturns.models.intake import open_session

        return open_session(**request)

    def follow(self, session: Session, **request: Any) -> Turn:
        """Queue the next turn of ``session``, see ``Session.send``."""
        from agentturns.models.intake import follow_up

        return follow_up(session, **request)
