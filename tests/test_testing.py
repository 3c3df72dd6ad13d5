"""``agentturns.testing`` as people who test their own agents use it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.dispatch import Signal
from django.test import TestCase

from agentturns import Agent, Turn, tool
from agentturns.engine import runner
from agentturns.providers.base import Fault, ProviderError
from agentturns.signals import step_finished, turn_finished, turn_parked, turn_started
from agentturns.testing import ScriptedModel, drain, reply

ROOT = Path(__file__).resolve().parent.parent


def helper(*script: Any, name: str = "helper", **options: Any) -> Agent:
    return Agent(name=name, model=ScriptedModel(list(script)), instructions="Help.", **options)


@contextmanager
def receiving(signal: Signal, receiver: Callable[..., Any]) -> Iterator[None]:
    def receive(sender: Any, signal: Any, **fields: Any) -> None:
        receiver(**fields)

    signal.connect(receive)
    try:
        yield
    finally:
        signal.disconnect(receive)


class DrainInsideATestCase(TestCase):
    """Nothing here is ever committed, and no other connection sees it."""

    def test_every_runnable_turn_runs_and_comes_back_as_it_stands(self) -> None:
        agent = helper("one", "two", "three")
        first = agent.start("a")
        second, other = first.session.send("b"), agent.start("c")
        ran = drain()
        assert ran == [first, second, other]
        assert [(turn.status, turn.answer) for turn in ran] == [("completed", said) for said in ("one", "two", "three")]

    def test_tools_of_every_effect_run_on_this_thread_and_this_connection(self) -> None:
        threads = []

        def noted() -> str:
            """Note."""
            threads.append(threading.current_thread())
            Group.objects.create(name=str(len(threads)))
            return "noted"

        effects = ("transactional", "idempotent", "at_most_once")
        tools = [tool(effect=effect, name=effect)(noted) for effect in effects]
        agent = helper(reply(tool_calls=[(effect, {}) for effect in effects]), "done", tools=tools)
        agent.start("go")
        [turn] = drain()
        assert turn.answer == "done"
        assert threads == [threading.current_thread()] * 3
        assert Group.objects.count() == 3

    def test_a_parked_turn_goes_on_at_the_next_drain_after_its_raise(self) -> None:
        agent = helper(reply(tool_calls=[("unknown", {})], cost="0.30"), "done", limits={"max_cost": "0.25"})
        turn = agent.start("go")
        assert [each.park_reason for each in drain()] == ["max_cost"]
        assert drain() == []
        turn.raise_budget(max_cost="0.50")
        assert [each.status for each in drain()] == ["completed"]

    def test_signals_are_sent_when_production_would_send_them(self) -> None:
        heard: list[tuple[str, str]] = []

        def note(name: str) -> Callable[..., None]:
            return lambda turn, **_: heard.append((name, Turn.objects.get(pk=turn.pk).status))

        agent = helper(reply(tool_calls=[("unknown", {})]), "done")
        agent.start("go")
        with (
            receiving(turn_started, note("started")),
            receiving(step_finished, note("step")),
            receiving(turn_finished, note("finished")),
        ):
            drain()
        assert heard == [("started", "running"), ("step", "running"), ("step", "completed"), ("finished", "completed")]

    def test_a_receiver_may_act_on_the_turn_while_it_runs(self) -> None:
        agent = helper(reply(tool_calls=[("unknown", {})]), "never said")
        agent.start("go")
        with receiving(step_finished, lambda turn, **_: Turn.objects.get(pk=turn.pk).cancel()):
            [turn] = drain()
        assert (turn.status, turn.step_count) == ("canceled", 1)

    def test_hooks_of_a_tools_own_transaction_run_and_those_of_a_failed_one_do_not(self) -> None:
        committed: list[str] = []

        @tool(effect="transactional")
        def save(fails: bool) -> str:
            """Save."""
            transaction.on_commit(lambda: committed.append(f"fails={fails}"))
            if fails:
                raise ValueError("no")
            return "saved"

        agent = helper(reply(tool_calls=[("save", {"fails": True}), ("save", {"fails": False})]), "done", tools=[save])
        agent.start("go")
        drain()
        assert committed == ["fails=False"]

    def test_hooks_are_not_run_again_by_who_captures_them(self) -> None:
        heard = []
        agent = helper("done")
        with (
            receiving(turn_finished, lambda turn, **_: heard.append(turn)),
            self.captureOnCommitCallbacks(execute=True),
        ):
            agent.start("go")
            drain()
        assert len(heard) == 1

    def test_hooks_that_the_test_registered_are_left_to_the_test(self) -> None:
        heard: list[str] = []
        with self.captureOnCommitCallbacks() as callbacks:
            transaction.on_commit(lambda: heard.append("mine"))
            helper("done").start("go")
            drain()
        assert (heard, len(callbacks)) == ([], 1)

    def test_the_connection_is_as_it_was_afterwards(self) -> None:
        before = connection.savepoint_commit
        helper("done").start("go")
        drain()
        assert connection.savepoint_commit == before


@pytest.mark.django_db
def test_run_turns_is_drain(run_turns: Callable[..., list[Turn]]) -> None:
    helper("done").start("go")
    assert [turn.answer for turn in run_turns()] == ["done"]
    assert run_turns is drain


@pytest.mark.django_db
def test_a_turn_that_backs_off_is_left_for_later(run_turns: Callable[..., list[Turn]]) -> None:
    helper(ProviderError("busy", fault=Fault.TRANSIENT), "done").start("go")
    [turn] = run_turns()
    assert (turn.status, turn.provider_failures) == ("queued", 1)
    assert run_turns() == []


@pytest.mark.django_db
def test_turns_without_an_end_are_an_error(run_turns: Callable[..., list[Turn]]) -> None:
    agent = Agent(name="helper", model=ScriptedModel(lambda request: "done"), instructions="Help.")
    agent.start("go")
    with (
        receiving(turn_finished, lambda turn, **_: turn.session.send("and again")),
        pytest.raises(RuntimeError, match=r"took turns up 10 times and turn \d+ is runnable still"),
    ):
        run_turns(limit=10)


@pytest.mark.django_db
def test_the_limit_itself_may_be_reached(run_turns: Callable[..., list[Turn]]) -> None:
    agent = Agent(name="helper", model=ScriptedModel(lambda request: "done"), instructions="Help.")
    for _ in range(3):
        agent.start("go")
    assert len(run_turns(limit=3)) == 3


@pytest.mark.django_db
def test_an_error_in_the_engine_comes_out(
    run_turns: Callable[..., list[Turn]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(runner.ledger, "begin_step", fail)
    helper("done").start("go")
    with pytest.raises(RuntimeError, match="a bug"):
        run_turns()


@pytest.mark.django_db(transaction=True)
def test_drain_works_where_transactions_are_real_too(run_turns: Callable[..., list[Turn]]) -> None:
    heard = []
    helper(reply(tool_calls=[("unknown", {})], cost="0.30"), "done", limits={"max_cost": "0.25"}).start("go")
    with receiving(turn_parked, lambda turn, **_: heard.append(turn.park_reason)):
        [turn] = run_turns()
    assert (turn.park_reason, heard) == ("max_cost", ["max_cost"])


def test_the_fixture_comes_with_the_installed_package(tmp_path: Path) -> None:
    """As pytest finds it in another project, through the entry point of the package's metadata."""
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    metadata = tmp_path / "agentturns-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: agentturns\nVersion: 0\n")
    lines = [f"{name} = {module}" for name, module in entry_points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    (tmp_path / "test_theirs.py").write_text(
        "from agentturns.testing import drain\n\n\ndef test_theirs(run_turns):\n    assert run_turns is drain\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--ds=project.settings", "-p", "no:cacheprovider", "test_theirs.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
