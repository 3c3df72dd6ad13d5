"""A worker's claim on a turn: how it is taken, kept alive by fences, and checked before outside work."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction
from django.db.models import F
from django.db.models.functions import Coalesce
from django.utils import timezone

from agentturns.conf import conf
from agentturns.exceptions import LeaseLost
from agentturns.models.clock import database_now, database_now_plus
from agentturns.models.lifecycle import after_commit
from agentturns.models.session import Session
from agentturns.models.states import Status, StepStatus
from agentturns.models.step import Step
from agentturns.models.turn import Turn
from agentturns.signals import turn_started

if TYPE_CHECKING:
    from datetime import datetime


@dataclass
class Claim:
    """One worker's hold on one turn. ``deadline`` is on this process's monotonic clock, in seconds."""

    turn: Turn
    owner: str
    attempt: int
    took_over: bool
    began: float
    deadline: float = 0.0
    ended: bool = field(default=False)

    def held(self) -> Any:
        """The turn's row, as long as this claim holds it."""
        return Turn.objects.filter(pk=self.turn.pk, lease_owner=self.owner, attempt=self.attempt, status=Status.RUNNING)

    def fence(self, **columns: Any) -> None:
        """Renew the lease and write ``columns``, or raise ``LeaseLost``. The last statement of a transaction."""
        asked = time.monotonic()
        if self.ended or not self.held().update(**_lease(), **columns):
            self.ended = True
            raise LeaseLost(f"Turn {self.turn.pk} is no longer held by {self.owner} (attempt {self.attempt}).")
        self.deadline = asked + conf.LEASE_SECONDS

    def require(self) -> None:
        """Raise ``LeaseLost`` where the lease may have run out by the local clock. Asked before outside work."""
        if self.ended or time.monotonic() >= self.deadline:
            raise LeaseLost(f"The lease of turn {self.turn.pk} ran out before it could be renewed.")

    def elapsed(self) -> float:
        """Active seconds since this claim was taken."""
        return time.monotonic() - self.began


def claim(turn_id: int, owner: str) -> Claim | None:
    """Take the turn up if it is runnable and nobody is about to; None otherwise. Never waits for a row lock."""
    began = time.monotonic()
    with transaction.atomic(using=conf.DATABASE, durable=True):
        turn = _locked_candidate(turn_id)
        if turn is None:
            return None
        took_over = turn.status == Status.RUNNING
        if not (_take_over(turn, owner) if took_over else _take_up(turn, owner)):
            transaction.set_rollback(True, using=conf.DATABASE)
            return None
        if turn.attempt == 0:
            after_commit(turn_started, turn)
        turn.attempt += 1
        turn.status = Status.RUNNING
        turn.active_since = timezone.now()
    return Claim(turn, owner, turn.attempt, took_over, began, deadline=began + conf.LEASE_SECONDS)


def _locked_candidate(turn_id: int) -> Turn | None:
    wanted = Turn.objects.filter(pk=turn_id, status__in=(Status.QUEUED, Status.RUNNING)).select_related("session")
    if connections[conf.DATABASE].features.has_select_for_update_skip_locked:
        wanted = wanted.select_for_update(skip_locked=True, no_key=True, of=("self", "session"))
    return wanted.first()


def _take_up(turn: Turn, owner: str) -> bool:
    taken = Turn.objects.filter(pk=turn.pk).ready().update(**_claimed(turn, owner))
    return bool(taken) and bool(
        Session.objects.filter(pk=turn.session_id, active_turn__isnull=True).update(active_turn=turn.pk)
    )


def _take_over(turn: Turn, owner: str) -> bool:
    """Take a dead worker's turn: its clock counts up to the last renewal, its lost model call is presumed billed."""
    active = _seconds_between(turn.active_since, turn.lease_renewed_at)
    turn.crashes += 1
    turn.stretch_seconds += active
    turn.active_seconds += active
    presumed = _presume_lost_call(turn)
    turn.presumed_cost += presumed
    return bool(
        Turn.objects.filter(pk=turn.pk, attempt=turn.attempt)
        .abandoned()
        .update(
            **_claimed(turn, owner),
            crashes=turn.crashes,
            stretch_seconds=turn.stretch_seconds,
            active_seconds=turn.active_seconds,
            presumed_cost=turn.presumed_cost,
        )
    )


def _presume_lost_call(turn: Turn) -> Any:
    """Write the estimate of a model call that was under way when the worker died to its step; return it."""
    lost = Step.objects.filter(turn=turn.pk, status=StepStatus.STARTED, error="").first()
    if lost is None:
        return 0
    presumed = lost.estimate or 0
    Step.objects.filter(pk=lost.pk).update(
        presumed_cost=lost.presumed_cost + presumed, error="The worker died during this call."
    )
    return presumed


def _claimed(turn: Turn, owner: str) -> dict[str, Any]:
    return {
        "status": Status.RUNNING,
        "lease_owner": owner,
        "attempt": turn.attempt + 1,
        "active_since": database_now(),
        "started_at": Coalesce(F("started_at"), database_now()),
        "run_after": None,
        "error_code": "",
        "error_message": "",
        **_lease(),
    }


def _lease() -> dict[str, Any]:
    return {"lease_expires_at": database_now_plus(conf.LEASE_SECONDS), "lease_renewed_at": database_now()}


def _seconds_between(since: datetime | None, until: datetime | None) -> float:
    return max(0.0, (until - since).total_seconds()) if since and until else 0.0


def renew(owner: str) -> set[int]:
    """Renew every lease of ``owner`` whose row nobody locks; the ids of the renewed turns.

    A locked row is left out rather than waited for: whoever locks it keeps others away from it too.
    """
    with transaction.atomic(using=conf.DATABASE):
        held = Turn.objects.filter(status=Status.RUNNING, lease_owner=owner).order_by()
        if connections[conf.DATABASE].features.has_select_for_update_skip_locked:
            ids = set(held.select_for_update(skip_locked=True, no_key=True).values_list("pk", flat=True))
            Turn.objects.filter(pk__in=ids).update(**_lease())
        else:
            ids = set(held.values_list("pk", flat=True))
            held.update(**_lease())
        return ids


def candidates(limit: int, *, alone: bool, exclude: Iterable[int] = ()) -> list[int]:
    """Ids of runnable turns, oldest first.

    Turns that were running when a worker died run alone in their process: they are offered only with ``alone``,
    and then first.
    """
    skip = list(exclude)
    if alone:
        crashed = list(
            Turn.objects.abandoned().exclude(pk__in=skip).order_by("lease_expires_at").values_list("pk", flat=True)[:1]
        ) or list(
            Turn.objects.ready()
            .filter(crashes__gt=0)
            .exclude(pk__in=skip)
            .order_by("pk")
            .values_list("pk", flat=True)[:1]
        )
        if crashed:
            return crashed
    ready = Turn.objects.ready().filter(crashes=0).exclude(pk__in=skip)
    return list(ready.order_by("pk").values_list("pk", flat=True)[:limit])
