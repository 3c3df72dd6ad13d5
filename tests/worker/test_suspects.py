"""Turns that were running when a worker died: any of them may have brought it down, so each runs alone at first."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pytest_django import Settings

from agentturns import Agent, Turn
from agentturns.testing import ScriptedModel, reply
from tests.worker.pumps import abandon, pumping, statuses, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def quick(settings: Settings) -> None:
    settings.AGENTTURNS = {"POLL_SECONDS": 0.02}


class Watch:
    """A model with three steps a turn, which notes which turns are inside a call when one begins.

    ``hold`` has an event for each step; its calls return once that is set.
    """

    def __init__(self) -> None:
        self.log: list[tuple[str, int, frozenset[str]]] = []
        self.hold = {step: threading.Event() for step in (1, 2, 3)}
        self._inside: set[str] = set()
        self._lock = threading.Lock()
        self.agent = Agent(name="tester", model=ScriptedModel(self._speak), instructions="…")

    def _speak(self, request: Any) -> Any:
        name = request.messages[0]["content"]
        step = 1 + sum(message["role"] == "assistant" for message in request.messages)
        with self._lock:
            self.log.append((name, step, frozenset(self._inside)))
            self._inside.add(name)
        assert self.hold[step].wait(20)
        with self._lock:
            self._inside.discard(name)
        return reply(tool_calls=[("unknown", {})]) if step < 3 else "done"

    def release(self, *steps: int) -> None:
        for step in steps:
            self.hold[step].set()

    def started(self, step: int, *names: str) -> bool:
        """Whether this step of all these turns, or of any, has begun."""
        begun = {name for name, begun_step, _ in self.log if begun_step == step}
        return begun >= set(names) if names else bool(begun)


def test_a_suspect_runs_alone_until_it_has_made_progress() -> None:
    watch = Watch()
    suspect, other = watch.agent.start("suspect"), watch.agent.start("other")
    abandon(suspect)
    with pumping() as beside:
        until(lambda: watch.started(1, "suspect"))
        late = watch.agent.start("late")
        watch.release(1)
        until(lambda: watch.started(2, "suspect", "other", "late"))
        watch.release(2, 3)
        beside.join()
    assert statuses(suspect, other, late) == ["completed"] * 3
    assert watch.log[0] == ("suspect", 1, frozenset())
    assert watch.log[1][:2] == ("suspect", 2)


def test_a_suspect_is_not_taken_up_beside_other_turns() -> None:
    watch = Watch()
    other = watch.agent.start("other")
    with pumping() as beside:
        until(lambda: watch.started(1, "other"))
        suspect = watch.agent.start("suspect")
        abandon(suspect)
        watch.release(1, 2)
        until(lambda: watch.started(3, "other"))
        watch.release(3)
        beside.join()
    assert statuses(other, suspect) == ["completed", "completed"]
    assert [name for name, _, _ in watch.log] == ["other"] * 3 + ["suspect"] * 3


def test_the_many_turns_of_one_dead_worker_are_all_looked_at_before_the_first_of_them_ends() -> None:
    watch = Watch()
    names = [f"suspect {number}" for number in range(4)]
    suspects = [watch.agent.start(name) for name in names]
    for turn in suspects:
        abandon(turn)
    watch.release(1)
    with pumping() as beside:
        for number, name in enumerate(names, start=1):
            until(lambda name=name: watch.started(2, name))
            if number < len(names):
                assert until(beside.pump.keeper.stopping.is_set)
                watch.release(2)
                watch.hold[2] = threading.Event()
        assert not watch.started(3)
        watch.release(2, 3)
        beside.join()
    assert statuses(*suspects) == ["completed"] * 4
    firsts = [(name, beside) for name, step, beside in watch.log if step == 1]
    assert firsts == [(name, frozenset()) for name in names]
    assert len(watch.log) == 12
    assert list(Turn.objects.order_by("pk").values_list("crashes", "step_count")) == [(0, 3)] * 4
