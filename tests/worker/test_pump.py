"""The pump: what it claims, how many at once, how long it stays, what it leaves behind."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from pytest_django import Settings

from agentturns import Agent, Turn
from agentturns.engine import backoff
from agentturns.models.clock import database_now
from agentturns.providers.base import Fault, ProviderError
from agentturns.testing import ScriptedModel, reply
from agentturns.worker import pump as pump_module
from agentturns.worker.pump import Pump, PumpEnd
from tests.worker.pumps import answering, bells, pumping, silence, statuses, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def quick(settings: Settings) -> None:
    settings.AGENTTURNS = {"POLL_SECONDS": 0.02}


def test_a_pump_runs_whatever_is_runnable_and_returns_when_nothing_is_left() -> None:
    agent = answering()
    turns = [agent.start(str(number)) for number in range(5)]
    assert Pump().run() is PumpEnd.IDLE
    assert statuses(*turns) == ["completed"] * 5


def test_turns_run_at_once_up_to_the_concurrency(settings: Settings) -> None:
    settings.AGENTTURNS = {"CONCURRENCY": 3, "POLL_SECONDS": 0.02}
    all_three = threading.Barrier(3)
    most, under_way, lock = 0, 0, threading.Lock()

    def speak(request: Any) -> str:
        nonlocal most, under_way
        with lock:
            under_way += 1
            most = max(most, under_way)
        all_three.wait(20)
        with lock:
            under_way -= 1
        return "done"

    agent = Agent(name="tester", model=ScriptedModel(speak), instructions="…")
    turns = [agent.start(str(number)) for number in range(9)]
    assert Pump().run() is PumpEnd.IDLE
    assert statuses(*turns) == ["completed"] * 9
    assert most == 3


def test_the_turn_it_was_rung_for_comes_first(settings: Settings) -> None:
    settings.AGENTTURNS = {"CONCURRENCY": 1, "POLL_SECONDS": 0.02}
    heard: list[str] = []

    def speak(request: Any) -> str:
        heard.append(request.messages[0]["content"])
        return "done"

    agent = Agent(name="tester", model=ScriptedModel(speak), instructions="…")
    turns = [agent.start(name) for name in ("one", "two", "three")]
    Pump().run(turns[2].pk)
    assert heard == ["three", "one", "two"]


def test_a_working_pump_with_room_finds_new_turns_by_itself() -> None:
    answered = threading.Event()

    def speak(request: Any) -> str:
        if request.messages[0]["content"] == "long":
            assert answered.wait(20)
        return "done"

    agent = Agent(name="tester", model=ScriptedModel(speak), instructions="…")
    long = agent.start("long")
    with pumping() as beside:
        until(lambda: statuses(long) == ["running"])
        silence()
        late = agent.start("late")
        silence()
        until(lambda: statuses(late) == ["completed"])
        answered.set()
        assert beside.join() is PumpEnd.IDLE
    assert statuses(long, late) == ["completed", "completed"]


def test_turns_of_one_session_follow_each_other_in_one_pump() -> None:
    agent = answering()
    first = agent.start("one")
    second = first.session.send("two")
    Pump().run(second.pk)
    assert statuses(first, second) == ["completed", "completed"]
    assert Turn.objects.get(pk=first.pk).finished_at <= Turn.objects.get(pk=second.pk).started_at


def test_a_pump_stays_for_a_wait_that_ends_within_its_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_WAIT_SECONDS", 0.3)
    busy = ProviderError("busy", fault=Fault.TRANSIENT)
    agent = Agent(name="tester", model=ScriptedModel([busy, "done"]), instructions="…")
    turn = agent.start("go")
    assert Pump().run() is PumpEnd.IDLE
    assert statuses(turn) == ["completed"]


def test_a_pump_does_not_stay_for_a_wait_beyond_its_slice(settings: Settings) -> None:
    settings.AGENTTURNS = {"SLICE_SECONDS": 30}
    turn = answering().start("go")
    Turn.objects.filter(pk=turn.pk).update(run_after=database_now() + timedelta(seconds=3_600))
    silence()
    assert Pump().run() is PumpEnd.IDLE
    assert bells() == []


def test_at_its_slices_end_a_pump_rings_and_its_turns_yield_between_steps(settings: Settings) -> None:
    settings.AGENTTURNS = {"SLICE_SECONDS": 0.3, "POLL_SECONDS": 0.02}
    over = threading.Event()

    def speak(request: Any) -> Any:
        if len(request.messages) == 1:
            assert over.wait(20)
            return reply(tool_calls=[("unknown", {})])
        return "done"

    model = ScriptedModel(speak)
    turn = Agent(name="tester", model=model, instructions="…").start("go")
    silence()
    with pumping() as beside:
        until(lambda: bells() == [turn.pk])  # rung before the turn has yielded
        assert statuses(turn) == ["running"]
        over.set()
        assert beside.join() is PumpEnd.SLICE_OVER
    assert (statuses(turn), len(model.requests)) == (["queued"], 1)
    settings.AGENTTURNS = {"POLL_SECONDS": 0.02}
    Pump().run()
    assert (statuses(turn), len(model.requests)) == (["completed"], 2)


def test_a_pump_whose_slice_is_over_claims_no_more(settings: Settings) -> None:
    settings.AGENTTURNS = {"SLICE_SECONDS": 0.2, "POLL_SECONDS": 0.02}
    answered = threading.Event()

    def speak(request: Any) -> str:
        assert answered.wait(20)
        return "done"

    agent = Agent(name="tester", model=ScriptedModel(speak), instructions="…")
    turn = agent.start("go")
    silence()
    with pumping() as beside:
        until(lambda: bells() == [turn.pk])
        late = agent.start("late")
        answered.set()
        beside.join()
    assert statuses(turn, late) == ["completed", "queued"]


def test_a_pump_that_is_told_to_stop_gives_its_turns_back_and_leaves_the_bell_to_the_supervisor() -> None:
    asked, answered = threading.Event(), threading.Event()

    def speak(request: Any) -> Any:
        asked.set()
        assert answered.wait(20)
        return reply(tool_calls=[("unknown", {})])

    turn = Agent(name="tester", model=ScriptedModel(speak), instructions="…").start("go")
    with pumping() as beside:
        assert asked.wait(20)
        silence()
        beside.stop.set()
        until(beside.pump.keeper.stopping.is_set)
        assert bells() == []
        answered.set()
        assert beside.join() is PumpEnd.STOPPED
    assert statuses(turn) == ["queued"]
    assert bells() == [turn.pk]  # the turn's own, rung as it was given back


def test_an_error_in_the_engine_ends_neither_the_pump_nor_other_turns_and_parks_the_turn_in_the_end(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings.AGENTTURNS = {"LEASE_SECONDS": 0.4, "POLL_SECONDS": 0.05, "SLICE_SECONDS": 20}
    agent = answering()
    broken, fine = agent.start("broken"), agent.start("fine")
    really = pump_module.run_claimed

    def run_claimed(claim: Any, keeper: Any) -> Any:
        if claim.turn.pk == broken.pk and claim.turn.crashes < 3:
            keeper.release(claim)
            raise RuntimeError("a bug")
        return really(claim, keeper)

    monkeypatch.setattr(pump_module, "run_claimed", run_claimed)
    while statuses(broken) == ["running"] or statuses(broken) == ["queued"]:
        Pump().run()
    assert statuses(fine) == ["completed"]
    broken.refresh_from_db()
    assert (broken.status, broken.park_reason, broken.crashes) == ("parked", "crash_loop", 3)
    assert caplog.text.count("failed outside its tools and its model") == 3


def test_a_database_error_while_looking_for_turns_is_survived(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    really, failures = pump_module.candidates, iter([OperationalError("the server went away")] * 2)

    def candidates(*arguments: Any, **options: Any) -> list[int]:
        for failure in failures:
            raise failure
        return really(*arguments, **options)

    monkeypatch.setattr(pump_module, "candidates", candidates)
    turn = answering().start("go")
    assert Pump().run() is PumpEnd.IDLE
    assert statuses(turn) == ["completed"]
    assert "failures=2 error=OperationalError" in caplog.text


@pytest.mark.postgres
def test_connections_that_the_server_ends_while_a_model_is_called_are_replaced() -> None:
    asked, answered = threading.Event(), threading.Event()

    def speak(request: Any) -> str:
        if request.messages[0]["content"] == "long":
            asked.set()
            assert answered.wait(20)
        return "done"

    agent = Agent(name="tester", model=ScriptedModel(speak), instructions="…")
    long = agent.start("long")
    with pumping() as beside:
        assert asked.wait(20)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        late = agent.start("late")
        until(lambda: statuses(late) == ["completed"])
        answered.set()
        assert beside.join() is PumpEnd.IDLE
    assert statuses(long) == ["completed"]


def test_one_thread_after_another_turn_by_turn_is_one_thread_and_ends_with_the_pump() -> None:
    threads: set[str] = set()

    def speak(request: Any) -> str:
        threads.add(threading.current_thread().name)
        return "done"

    agent = Agent(name="tester", model=ScriptedModel(speak), instructions="…")
    first = agent.start("0")
    for number in range(9):
        first.session.send(str(number))
    before = threading.active_count()
    Pump().run()
    assert Turn.objects.filter(status="completed").count() == 10
    assert len(threads) == 1
    assert threading.active_count() == before
