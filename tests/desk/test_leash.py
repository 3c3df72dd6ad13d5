"""The leash: a command that runs for as long as somebody holds on to it, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from project.desk.demo import leash
from tests.desk.running_demo import eventually

PATIENCE = "1"
SLEEPS = "import time; time.sleep(300)"
# Its child is in a process group of its own, as a worker's cluster is, and neither heeds SIGTERM.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], process_group=0)
print(os.getpid(), child.pid, flush=True)
time.sleep(300)
"""
POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(300)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def hold(script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, leash.__file__, PATIENCE, sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def stubborn() -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A held command that must be killed, with a child; the ids of both."""
    held = hold(STUBBORN)
    assert held.stdout is not None
    pids = [int(pid) for pid in held.stdout.readline().split()]
    yield held, pids
    for pid in (held.pid, *pids):
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
    held.communicate(timeout=10)


def test_the_exit_code_is_the_commands() -> None:
    held = hold("import sys; sys.exit(3)")
    assert held.wait(10) == 3
    held.communicate()


def test_letting_go_ends_the_command_in_its_own_way() -> None:
    held = hold(POLITE)
    assert held.stdin is not None
    assert held.stdout is not None
    assert held.stdout.readline() == "ready\n"
    held.stdin.close()
    assert held.wait(10) == 7
    held.stdout.close()


def test_what_does_not_end_when_asked_is_killed_with_all_its_children(
    stubborn: tuple[subprocess.Popen[str], list[int]],
) -> None:
    held, pids = stubborn
    assert held.stdin is not None
    held.stdin.close()
    held.stdin = None
    held.wait(10)
    assert [pid for pid in pids if is_alive(pid)] == []


def test_a_byte_kills_at_once(stubborn: tuple[subprocess.Popen[str], list[int]]) -> None:
    held, pids = stubborn
    assert held.stdin is not None
    held.stdin.write("k")
    held.stdin.flush()
    assert held.wait(10) == 128 + signal.SIGKILL
    assert [pid for pid in pids if is_alive(pid)] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_to_the_leash_does_not_loosen_it(
    stubborn: tuple[subprocess.Popen[str], list[int]], number: signal.Signals
) -> None:
    held, pids = stubborn
    held.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        held.wait(0.3)
    assert all(is_alive(pid) for pid in pids)


def test_a_holder_that_is_killed_lets_go_too() -> None:
    script = (
        "import subprocess, sys\n"
        f"held = subprocess.Popen([sys.executable, {leash.__file__!r}, '1', sys.executable, '-c', {STUBBORN!r}],"
        " stdin=subprocess.PIPE, start_new_session=True)\n"
        "held.wait()\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    pids = [int(pid) for pid in holder.stdout.readline().split()]
    holder.kill()
    holder.communicate(timeout=10)
    assert eventually(lambda: not any(is_alive(pid) for pid in pids), 10)
