"""``manage.py demo --once``, as a newcomer runs it: real processes, a real form, one exit code."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk.running_demo import RunningDemo, eventually, running, sqlite_url

pytestmark = pytest.mark.sqlite  # the demo's own database; what differs elsewhere is in test_demo_on_postgresql.py


def figures(output: str, row: str) -> list[str]:
    """The whole words in one row of the table."""
    line = next(line for line in output.splitlines() if line.startswith(row))
    return line[len(row) :].split()


@pytest.fixture(scope="module")
def done() -> Iterator[tuple[RunningDemo, int, float]]:
    """One run from its start to its end: the run, its exit code and its seconds. A key is in the environment."""
    before = time.monotonic()
    with running("--once", OPENAI_API_KEY="not-a-key", ANTHROPIC_API_KEY="not-a-key") as demo:
        code = demo.end()
        yield demo, code, time.monotonic() - before


def test_it_succeeds_within_its_minute(done: tuple[RunningDemo, int, float]) -> None:
    demo, code, seconds = done
    assert code == 0, demo.output
    assert seconds < 60


def test_its_table_shows_the_turn_parked_and_finished(done: tuple[RunningDemo, int, float]) -> None:
    output = done[0].output
    assert figures(output, "status")[:3] == ["parked", "(max_cost)", "completed"]
    assert figures(output, "steps")[:2] == ["2", "4"]
    assert figures(output, "model calls")[:2] == ["2", "4"]
    assert " ".join(figures(output, "tool effects")).startswith("1 look-up, 1 refund 1 look-up, 1 refund, 1")
    assert figures(output, "spent")[:2] == ["$0.06", "$0.09"]
    assert figures(output, "limit")[:2] == ["$0.05", "$0.20"]


def test_it_shows_what_the_turn_waited_for_and_its_answer(done: tuple[RunningDemo, int, float]) -> None:
    output = done[0].output
    assert "Spent $0.06 of max_cost $0.05; raise max_cost to go on." in output
    assert "Answer: Order A-1001, a blue teapot, paid £18.00: £18.00 is refunded" in output


def test_it_leaves_no_process(done: tuple[RunningDemo, int, float]) -> None:
    assert done[0].pids() == []


def test_it_does_not_touch_the_projects_own_database(done: tuple[RunningDemo, int, float]) -> None:
    assert "agentturns-demo-" not in done[0].output
    assert "Turn 1 is started" in done[0].output


def test_taken_ports_are_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running("--once", "--port", str(port)) as demo:
            demo.read("A web server on port")
            assert f"on port {port} " not in demo.output


def test_a_database_url_is_used_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "own db.sqlite3"
    with running("--once", DATABASE_URL=sqlite_url(file)) as demo:
        assert demo.end() == 0
    with sqlite3.connect(file) as database:
        assert database.execute("select status, answer != '' from agentturns_turn").fetchall() == [("completed", 1)]
        account = "select is_active, is_superuser, password like '!%' from auth_user"
        assert database.execute(account).fetchall() == [(0, 0, 1)], "the account is still open"


def test_a_worker_that_dies_is_said_and_nothing_is_left() -> None:
    with running("--once") as demo:
        demo.read("Turn 1 is started")
        assert eventually(lambda: bool(demo.pids("turnworker", but_not="leash")), 30)
        for pid in demo.pids("turnworker", but_not="leash"):
            os.kill(pid, signal.SIGKILL)
        assert demo.end() == 1
        assert "The demo failed. The worker ended by itself with exit code 137." in demo.output
        assert demo.pids() == []


def test_a_database_that_cannot_be_reached_is_said_in_a_sentence() -> None:
    with running("--once", DATABASE_URL="sqlite:////nowhere/at/all.sqlite3") as demo:
        assert demo.end() == 1
        assert "The demo failed. The database refuses (OperationalError): unable to open database file" in demo.output
        assert "Traceback" not in demo.output


def test_a_database_that_people_may_rely_on_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "deployed.sqlite3"
    with running("--once", DATABASE_URL=sqlite_url(file), SECRET_KEY="x" * 50) as demo:
        assert demo.end() == 1
        assert "DEBUG is off, so people may rely on this database" in demo.output
        assert not file.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_on_the_way_it_leaves_no_process(number: signal.Signals) -> None:
    with running("--once") as demo:
        demo.read("Turn 1 is started")
        demo.process.send_signal(number)
        assert demo.end() == 128 + number
        assert f"Stopped by {number.name}" in demo.output
        assert demo.pids() == []


def test_killed_on_the_way_it_leaves_no_process() -> None:
    with running("--once") as demo:
        demo.read("Turn 1 is started")
        demo.process.kill()
        assert demo.leaves_nothing()
