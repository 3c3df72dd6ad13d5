"""A tool that never comes back holds a thread for good: the pump lets everything else go, and says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

from agentturns import Agent, Tool, tool
from agentturns.testing import ScriptedModel, reply
from agentturns.worker import tasks
from agentturns.worker.pump import Pump, PumpEnd
from tests.worker.pumps import bells, pumping, silence, statuses, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def quick(settings: Settings) -> None:
    settings.AGENTTURNS = {"POLL_SECONDS": 0.02}


@pytest.fixture
def freed() -> Iterator[threading.Event]:
    """Set after the test, so that no thread of it hangs on."""
    event = threading.Event()
    yield event
    event.set()
    until(lambda: not any(thread.name.startswith("agentturns-") for thread in threading.enumerate()))


def hanging(freed: threading.Event, effect: str = "idempotent") -> Tool:
    @tool(effect=effect, timeout=0.1)
    def hang() -> str:
        """Hang."""
        freed.wait(60)
        return "late"

    return hang


def test_a_hung_call_is_given_up_and_other_turns_yield_before_the_pump_asks_to_leave(freed: threading.Event) -> None:
    asked, answered = threading.Event(), threading.Event()

    def speak(request: Any) -> Any:
        name, is_first = request.messages[0]["content"], len(request.messages) == 1
        if name == "other" and is_first:
            asked.set()
            assert answered.wait(20)
            return reply(tool_calls=[("unknown", {})])
        return reply(tool_calls=[("hang", {})]) if name == "stuck" and is_first else "done"

    agent = Agent(name="tester", model=ScriptedModel(speak), instructions="…", tools=[hanging(freed)])
    other = agent.start("other")
    with pumping() as beside:
        assert asked.wait(20)
        stuck = agent.start("stuck")
        until(beside.pump.keeper.stopping.is_set)
        until(lambda: statuses(stuck) == ["queued"])
        late = agent.start("late")
        assert beside.end is None  # it waits for the other turn's boundary
        answered.set()
        assert beside.join() is PumpEnd.HUNG
    assert statuses(stuck, other, late) == ["queued"] * 3
    Pump().run()
    assert statuses(stuck, other, late) == ["completed"] * 3
    assert "no result within 0.1 seconds" in stuck.tool_calls.get().output_text


def test_another_worker_is_rung_for_before_the_process_leaves(freed: threading.Event) -> None:
    model = ScriptedModel([reply(tool_calls=[("hang", {})]), "done"])
    turn = Agent(name="tester", model=model, instructions="…", tools=[hanging(freed)]).start("go")
    silence()
    assert Pump().run() is PumpEnd.HUNG
    assert set(bells()) == {turn.pk}


def test_a_call_that_comes_back_late_leaves_the_process_whole(freed: threading.Event) -> None:
    @tool(effect="idempotent", timeout=0.05)
    def slow() -> str:
        """Be slow."""
        assert settled.wait(20)
        return "late"

    settled = threading.Event()
    model = ScriptedModel([reply(tool_calls=[("slow", {})]), "done"])
    turn = Agent(name="tester", model=model, instructions="…", tools=[slow]).start("go")
    with pumping() as beside:
        until(lambda: statuses(turn) == ["queued"] and beside.pump.keeper.stopping.is_set())
        settled.set()
        assert beside.join() is PumpEnd.SLICE_OVER
    assert turn.tool_calls.get().status == "failed"


def test_only_a_worker_process_is_ended_for_a_hung_thread(
    freed: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel([reply(tool_calls=[("hang", {})]), "done"])
    Agent(name="tester", model=model, instructions="…", tools=[hanging(freed)]).start("go")
    tasks.run_turns()
    assert "keeps a thread that hangs in a tool" in caplog.text
