"""``manage.py turnworker`` as an operating system meets it: started, signalled, killed, never leaving a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from django_q.models import OrmQ

from agentturns import Agent, Turn
from agentturns.definitions.agent import registered_agents
from tests.processes import TurnWorker, running_turnworker
from tests.subprocesses import ROOT, database_url, run_python
from tests.worker.pumps import until

pytestmark = pytest.mark.django_db(transaction=True)

Starts = Callable[..., AbstractContextManager[TurnWorker]]
QUICK = {"LEASE_SECONDS": 2, "POLL_SECONDS": 0.05}


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """Exists once a worker is inside the call of the agent of that name."""
    return tmp_path / "inside"


@pytest.fixture
def environment(tmp_path: Path, inside: Path) -> Callable[..., dict[str, str]]:
    def given(agentturns: Any = QUICK, q_cluster: Any = None, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.worker.settings",
            "DATABASE_URL": database_url(),
            "SHOP_AGENTTURNS": json.dumps(agentturns),
            "SHOP_Q_CLUSTER": json.dumps(q_cluster or {}),
            "SHOP_INSIDE": str(inside),
            "PYTHONUNBUFFERED": "1",
            **more,
        }

    return given


@pytest.fixture
def turnworker(tmp_path: Path, environment: Callable[..., dict[str, str]]) -> Starts:
    def started(*arguments: str, **settings: Any) -> AbstractContextManager[TurnWorker]:
        return running_turnworker(tmp_path / "log", environment(**settings), "--processes", "1", *arguments)

    return started


def status_of(turn: Turn) -> str:
    return Turn.objects.values_list("status", flat=True).get(pk=turn.pk)


def start(name: str) -> Turn:
    """A turn of the agent that the worker's ``agents.py`` has under this name."""
    known = registered_agents().get(name)
    return (known or Agent(name=name, model=f"scripted:{name}", instructions="…")).start("go")


def begin(name: str) -> Turn:
    """A turn of that agent which a worker has taken up."""
    turn = start(name)
    until(lambda: status_of(turn) == "running")
    return turn


def cluster_of(worker: TurnWorker) -> int:
    """The leader of the cluster's process group."""
    return next(member.group for member in worker.members() if member.group != worker.pid)


def assert_ended(worker: TurnWorker, *, code: int = 0, within: float = 15) -> None:
    began = time.monotonic()
    assert worker.wait(within) == code, worker.said()
    assert worker.left_behind() == []
    assert time.monotonic() - began < within


# -- running --------------------------------------------------------------------------------------------------------


def test_it_runs_turns_with_the_sdks_imported_before_the_fork(turnworker: Starts) -> None:
    with turnworker("--processes", "2", "--concurrency", "3") as worker:
        turn = start("loaded")
        until(lambda: status_of(turn) == "completed")
        assert turn.tool_calls.get().result == ["anthropic", "openai"]
        # The supervisor, the cluster's leader, its two workers, and django-q2's pusher and monitor.
        assert len(worker.members()) == 6
        assert {member.group for member in worker.members()} == {worker.pid, cluster_of(worker)}
        assert "queue=agentturns concurrency=3" in worker.said()


def test_it_serves_the_turns_queue_and_leaves_the_projects_own_alone(turnworker: Starts, tmp_path: Path) -> None:
    begin_both = """
        from django_q.tasks import async_task
        from agentturns import get_agent

        async_task("time.sleep", 0)
        print(get_agent("quick").start("go").pk)
    """
    as_in_a_shop = """
        INSTALLED_APPS = [*INSTALLED_APPS, "tests.worker.shop"]
        Q_CLUSTER = {**Q_CLUSTER, "name": "shop"}
        AGENTTURNS = {"QUEUE": "turns"}
    """
    turn = Turn(pk=int(run_python(begin_both, tmp_path, settings=as_in_a_shop)))
    with turnworker(q_cluster={"name": "shop"}, agentturns={**QUICK, "QUEUE": "turns"}):
        until(lambda: status_of(turn) == "completed")
        until(lambda: not OrmQ.objects.filter(key="turns").exists())
        assert OrmQ.objects.filter(key="shop", lock__lte=timezone.now()).count() == 1


@pytest.mark.postgres
def test_it_runs_with_a_pool_of_connections(turnworker: Starts) -> None:
    with turnworker(SHOP_POOL="1"):
        turns = [start("quick") for _ in range(5)]
        until(lambda: {status_of(turn) for turn in turns} == {"completed"})
        walking = begin("walker")
        until(lambda: Turn.objects.get(pk=walking.pk).step_count > 2)


def test_a_tool_that_hangs_costs_its_process_and_nothing_else(turnworker: Starts) -> None:
    with turnworker() as worker:
        before = {member.pid for member in worker.members()}
        turn = start("stuck")
        until(lambda: status_of(turn) == "completed")
        assert "no result within 0.3 seconds" in turn.tool_calls.get().output_text
        answered_by = int(Turn.objects.get(pk=turn.pk).answer.split()[-1])
        assert answered_by not in before
        assert answered_by in {member.pid for member in worker.members()}
        assert "leaves, since a thread hangs in a tool" in worker.said()


# -- stopping -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_an_idle_worker_and_every_process_of_it(turnworker: Starts, number: signal.Signals) -> None:
    with turnworker() as worker:
        worker.stop(number)
        assert_ended(worker, within=8)
        assert f"turnworker stopping signal={number.name}" in worker.said()


def test_a_signal_to_all_of_its_processes_at_once_still_lets_turns_yield_and_leaves_a_bell_for_them(
    turnworker: Starts,
) -> None:
    with turnworker() as worker:
        turn = begin("walker")
        for member in worker.members():
            os.kill(member.pid, signal.SIGTERM)
        assert_ended(worker)
    turn.refresh_from_db()
    assert (turn.status, turn.lease_owner, turn.crashes) == ("queued", "", 0)
    assert OrmQ.objects.filter(key="agentturns", lock__lte=timezone.now()).exists()


def test_a_call_that_outlasts_the_grace_is_cut_off(turnworker: Starts, inside: Path) -> None:
    with turnworker("--grace", "0.5") as worker:
        turn = start("inside")
        until(inside.exists)
        worker.stop()
        assert_ended(worker, within=6)
    assert status_of(turn) == "running"  # until its lease is over


def test_a_second_signal_cuts_calls_off_at_once(turnworker: Starts, inside: Path) -> None:
    with turnworker("--grace", "300") as worker:
        start("inside")
        until(inside.exists)
        worker.stop()
        until(lambda: "turnworker stopping" in worker.said())
        time.sleep(1.1)  # sooner, it could be the same press of Ctrl-C, passed on by a parent
        worker.stop()
        assert_ended(worker, within=6)


# -- dying ----------------------------------------------------------------------------------------------------------


def test_when_the_supervisor_is_killed_turns_yield_and_the_cluster_ends(turnworker: Starts) -> None:
    with turnworker() as worker:
        turn = begin("walker")
        os.kill(worker.pid, signal.SIGKILL)
        assert worker.left_behind() == []
    turn.refresh_from_db()
    assert (turn.status, turn.crashes) == ("queued", 0)


def test_when_the_cluster_dies_the_worker_fails_and_leaves_nothing(turnworker: Starts) -> None:
    with turnworker() as worker:
        os.kill(cluster_of(worker), signal.SIGKILL)
        assert_ended(worker, code=1)
        assert "its cluster ended by itself" in worker.said()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_when_supervisor_and_cluster_are_killed_together_no_orphan_goes_on(turnworker: Starts, inside: Path) -> None:
    with turnworker() as worker:
        start("inside")
        until(inside.exists)
        leader = cluster_of(worker)
        os.kill(worker.pid, signal.SIGKILL)
        os.kill(leader, signal.SIGKILL)
        assert worker.left_behind() == []


def test_a_worker_that_cannot_reach_its_broker_fails(environment: Callable[..., dict[str, str]]) -> None:
    redis_is_away = environment(q_cluster={"orm": None, "redis": "redis://127.0.0.1:1"})
    done = subprocess.run(
        [sys.executable, "manage.py", "turnworker"],
        cwd=ROOT,
        env=redis_is_away,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert "cluster failed queue=agentturns" in done.stderr


@pytest.mark.parametrize("option", ["--processes", "--concurrency"])
def test_a_count_below_one_is_refused(option: str) -> None:
    with pytest.raises(CommandError, match="'0' is not a whole number above 0"):
        call_command("turnworker", option, "0")
