"""A transactional tool that takes its time: no other turn of its process loses its lease over it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.contrib.auth.models import Group
from pytest_django import Settings

from agentturns import Agent, Turn, tool
from agentturns.models.clock import database_now
from agentturns.testing import ScriptedModel, reply
from tests.worker.pumps import pumping, until

pytestmark = pytest.mark.django_db(transaction=True)

LEASE_SECONDS = 1.0
OTHERS = 6


@pytest.mark.parametrize("held", [0.6, 1.5], ids=["longer than half a lease", "longer than a lease"])
def test_a_transaction_held_costs_no_other_turn_of_its_process_its_lease(settings: Settings, held: float) -> None:
    settings.AGENTTURNS = {"LEASE_SECONDS": LEASE_SECONDS, "POLL_SECONDS": 0.05, "SLICE_SECONDS": 60}
    over, holding = threading.Event(), threading.Event()
    waiting = threading.Semaphore(0)

    @tool(effect="transactional")
    def hold(name: str) -> str:
        """Write, and keep the transaction open."""
        Group.objects.create(name=name)
        holding.set()
        ends_at = time.monotonic() + held * LEASE_SECONDS
        while time.monotonic() < ends_at:
            time.sleep(0.1)
            Group.objects.exists()  # PostgreSQL ends a transaction that is idle for a lease
        return "held"

    def speak(request: Any) -> Any:
        if request.messages[0]["content"] == "other":
            if len(request.messages) == 1:
                waiting.release()
                assert over.wait(30)
                return reply(tool_calls=[("hold_nothing", {})])
            return "done"
        return (
            reply(tool_calls=[("hold", {"name": str(len(request.messages))})]) if len(request.messages) < 5 else "done"
        )

    @tool(effect="transactional")
    def hold_nothing() -> str:
        """Do little."""
        return "nothing"

    agent = Agent(name="tester", model=ScriptedModel(speak), instructions="…", tools=[hold, hold_nothing])
    others = [agent.start("other") for _ in range(OTHERS)]
    with pumping() as beside:
        for _ in range(OTHERS):
            assert waiting.acquire(timeout=20)
        holder = agent.start("holder")
        assert holding.wait(20)
        with pumping() as rival:  # it would take what it can get
            until(lambda: Turn.objects.filter(pk=holder.pk, status="completed").exists())
            assert not Turn.objects.filter(status="running", lease_expires_at__lt=database_now()).exists()
            over.set()
            beside.join()
            rival.join()
    finished = Turn.objects.filter(pk__in=[turn.pk for turn in (*others, holder)])
    assert set(finished.values_list("status", "attempt", "crashes")) == {("completed", 1, 0)}
    assert finished.count() == OTHERS + 1
    assert Group.objects.count() == 2
