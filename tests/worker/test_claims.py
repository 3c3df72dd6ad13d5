"""Many processes on one database: every turn runs once, and the turns of a session one after the other."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from agentturns import Agent, Turn
from agentturns.models.states import Status
from agentturns.testing import ScriptedModel
from agentturns.worker.forking import leave_databases
from agentturns.worker.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

PROCESSES, SESSIONS, TURNS = 8, 40, 200


def in_processes(work: Callable[[], None], count: int) -> list[int | None]:
    """The exit codes of so many forked processes that do ``work`` at the same time."""
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(count)

    def act() -> None:
        code = 1
        try:
            ready.wait(30)
            work()
            code = 0
        finally:
            leave_databases()
            sys.stderr.flush()
            os._exit(code)  # not through pytest's own way out

    leave_databases()
    processes = [context.Process(target=act) for _ in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
        process.kill()
    return [process.exitcode for process in processes]


def test_eight_processes_run_two_hundred_turns_of_forty_sessions_each_once_and_in_order(
    settings: Settings, tmp_path: Path
) -> None:
    settings.AGENTTURNS = {"CONCURRENCY": 3, "POLL_SECONDS": 0.02}
    log = tmp_path / "log"

    def speak(request: Any) -> str:
        turn = request.state.turn
        with log.open("a") as file:  # one short write in append mode is atomic
            file.write(f"{turn.session_id} {turn.index} {os.getpid()}\n")
        return "done"

    agent = Agent(name="tester", model=ScriptedModel(speak), instructions="…")
    sessions = [agent.start(f"session {number}").session for number in range(SESSIONS)]
    for _ in range(TURNS // SESSIONS - 1):
        for session in sessions:
            session.send("go on")

    def pump_until_done() -> None:
        while Turn.objects.filter(status__in=Status.unfinished()).exists():
            Pump().run()

    assert in_processes(pump_until_done, PROCESSES) == [0] * PROCESSES

    called = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    order = defaultdict(list)
    for session_id, index, _ in called:
        order[session_id].append(index)
    assert dict(order) == {session.pk: list(range(1, TURNS // SESSIONS + 1)) for session in sessions}
    assert len({process for *_, process in called}) > PROCESSES / 2
    counted = Counter(Turn.objects.values_list("status", "attempt", "crashes", "step_count"))
    assert counted == {("completed", 1, 0, 1): TURNS}
