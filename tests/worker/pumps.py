"""Pumps under test: run beside the test, with the models that turns of theirs talk to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connections
from django_q.models import OrmQ

from agentturns import Agent, Session, Turn
from agentturns.models.clock import database_now
from agentturns.testing import ScriptedModel, reply
from agentturns.worker.pump import Pump, PumpEnd


def answering(**options: Any) -> Agent:
    """An agent whose every turn is one step."""
    return Agent(name="tester", model=ScriptedModel(lambda request: reply("done", **options)), instructions="…")


class Beside:
    """A pump on a thread of its own; ``stop`` is set to stop it, ``end`` holds why it ended."""

    def __init__(self, first: int | None = None) -> None:
        self.stop = threading.Event()
        self.pump = Pump(stop=self.stop.is_set)
        self.end: PumpEnd | None = None
        self._first = first
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.end = self.pump.run(self._first)
        finally:
            connections.close_all()

    def join(self) -> PumpEnd:
        """Wait for the pump to end."""
        self.thread.join(30)
        assert self.end is not None, "the pump did not end"
        return self.end


@contextmanager
def pumping(first: int | None = None) -> Iterator[Beside]:
    """A pump that runs beside the block, and ends after it at the latest."""
    beside = Beside(first)
    beside.thread.start()
    try:
        yield beside
    finally:
        beside.stop.set()
        beside.join()


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    """What ``condition`` returns as soon as that is true."""
    ends_at = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < ends_at, "this did not happen in time"
        time.sleep(0.01)
    return found


def statuses(*turns: Turn) -> list[str]:
    """Where the turns stand now."""
    found = Turn.objects.in_bulk([turn.pk for turn in turns])
    return [found[turn.pk].status for turn in turns]


def abandon(turn: Turn) -> None:
    """Leave the turn as a worker does that died right after claiming it, long enough ago for its lease to be over."""
    Turn.objects.filter(pk=turn.pk).update(
        status="running",
        lease_owner="a worker that died",
        attempt=1,
        started_at=database_now(),
        active_since=database_now(),
        lease_renewed_at=database_now(),
        lease_expires_at=database_now() - timedelta(seconds=1),
    )
    Session.objects.filter(pk=turn.session_id).update(active_turn=turn.pk)


def bells() -> list[Any]:
    """The arguments of the messages in the queue, oldest first."""
    return [message.task["args"][0] for message in OrmQ.objects.order_by("pk")]


def silence() -> None:
    """Take every message out of the queue."""
    OrmQ.objects.all().delete()
