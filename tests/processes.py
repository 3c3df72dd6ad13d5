"""A ``manage.py turnworker`` in a session of its own, which a test may stop, or kill as a power cut does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.subprocesses import ROOT

READY = "cluster ready"
START_SECONDS = 40
GONE_SECONDS = 10
LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Member:
    """One living process of a session, and its process group."""

    pid: int
    group: int


def members(session: int) -> list[Member]:
    """The living processes of a session, whoever their parents are by now."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # "pid (name) state ppid pgrp session …", where the name may hold anything.
            state, _parent, group, its_session, *_ = stat.read_text().rpartition(")")[2].split()
            if int(its_session) == session and state not in "ZX":
                found.append(Member(int(stat.parent.name), int(group)))
    return found


class TurnWorker:
    """A running turn worker. ``environment`` is the whole environment; the output goes to the file ``log``."""

    def __init__(self, log: Path, environment: Mapping[str, str], *arguments: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "manage.py", "turnworker", *arguments],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The supervisor's, which leads the session."""
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Until its processes are there to run turns."""
        ends_at = time.monotonic() + START_SECONDS
        while READY not in self.said():
            assert self._process.poll() is None, f"turnworker ended while starting:\n{self.said()}"
            assert time.monotonic() < ends_at, f"turnworker did not start in {START_SECONDS} seconds:\n{self.said()}"
            time.sleep(LOOK_SECONDS)

    def said(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")

    def is_running(self) -> bool:
        """Whether its supervisor lives."""
        return self._process.poll() is None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to stop, as a process manager does."""
        self._process.send_signal(number)

    def wait(self, seconds: float = 30) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL all of its processes, the cluster's before the supervisor's, so that none learns of another's end."""
        while alive := self.members():
            for group in sorted({member.group for member in alive}, key=lambda group: group == self.pid):
                with suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            self._process.poll()
            time.sleep(LOOK_SECONDS / 10)
        self._process.wait()

    def members(self) -> list[Member]:
        """Its living processes, the supervisor's and the cluster's."""
        return members(self.pid)

    def left_behind(self) -> list[Member]:
        """What of it still lives some seconds after its end: nothing, if all is well."""
        ends_at = time.monotonic() + GONE_SECONDS
        while (alive := self.members()) and time.monotonic() < ends_at:
            time.sleep(LOOK_SECONDS)
        return alive


@contextmanager
def running_turnworker(log: Path, environment: Mapping[str, str], *arguments: str) -> Iterator[TurnWorker]:
    """A turn worker that is ready when the block begins, and gone after it however it ends."""
    worker = TurnWorker(log, environment, *arguments)
    try:
        worker.wait_until_ready()
        yield worker
    except BaseException:
        print(f"--- {log.name}\n{worker.said()}---")  # pytest shows it with the failure
        raise
    finally:
        worker.kill()
