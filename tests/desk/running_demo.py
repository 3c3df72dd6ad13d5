"""A demo in a process of its own, as a person runs it: with a pipe or a terminal, and nothing left of it at the end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from project.desk.demo.browser import Browser

ROOT = Path(__file__).resolve().parents[2]
OPEN = "Ctrl-C stops"  # the last line of the welcome
UNSET = (
    "DATABASE_URL",
    "SECRET_KEY",
    "DEBUG",
    "ALLOWED_HOSTS",
    "QCLUSTER_REDIS",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
)


def sqlite_url(file: Path) -> str:
    return f"sqlite:///{quote(str(file))}"


def eventually(true: Callable[[], bool], seconds: float) -> bool:
    """Whether ``true()`` becomes true within ``seconds``."""
    ends_at = time.monotonic() + seconds
    while not true():
        if time.monotonic() > ends_at:
            return False
        time.sleep(0.02)
    return True


class RunningDemo:
    """``manage.py demo`` under way. Every process of it carries a mark in its environment, by which it is found."""

    def __init__(self, *arguments: str, terminal: bool = False, **environment: str) -> None:
        self.mark = f"DEMO_TEST_MARK={uuid.uuid4().hex}"
        kept = {name: value for name, value in os.environ.items() if name not in UNSET}
        marked = dict([self.mark.split("=")])
        # A demo that is killed cannot remove its folder.
        self._folder = tempfile.TemporaryDirectory()
        self._near, far = os.openpty() if terminal else os.pipe()
        self.output = ""
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "demo", *arguments],
            cwd=ROOT,
            env={**kept, "TMPDIR": self._folder.name, **environment, **marked},
            stdin=far if terminal else subprocess.DEVNULL,
            stdout=far,
            stderr=far,
            start_new_session=True,
            preexec_fn=_take_terminal if terminal else None,
        )
        os.close(far)

    def read(self, until: str = "", seconds: float = 60) -> str:
        """What it printed, up to a line with ``until`` or to its end. Fails when that does not come."""
        ends_at = time.monotonic() + seconds
        while not (until and until in self.output):
            left = ends_at - time.monotonic()
            ready = left > 0 and select.select([self._near], [], [], left)[0]
            assert ready, f"No {until or 'end'!r} within {seconds} seconds:\n{self.output}"
            # A terminal whose last process is gone answers with an error instead of an empty read.
            with contextlib.suppress(OSError):
                if part := os.read(self._near, 65_536):
                    self.output += part.decode(errors="replace")
                    continue
            assert not until, f"It ended without {until!r}:\n{self.output}"
            break
        return self.output

    def end(self, seconds: float = 60) -> int:
        """Read to the end; its exit code."""
        self.read(seconds=seconds)
        return self.process.wait(seconds)

    def type(self, text: bytes) -> None:
        """Press keys at its terminal."""
        os.write(self._near, text)

    def close_terminal(self) -> None:
        """As when a person closes the terminal's window."""
        os.close(self._near)
        self._near = -1

    def pids(self, of: str = "", *, but_not: str = "\n") -> list[int]:
        """Its living processes, those with ``of`` in their command line and without ``but_not``."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                marked = self.mark.encode() in (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_text().replace("\0", " ")
                if marked and of in command and but_not not in command:
                    found.append(int(folder.name))
        return found

    def leaves_nothing(self, seconds: float = 30) -> bool:
        """Whether all its processes are gone, at the latest after ``seconds``."""
        return eventually(lambda: not self.pids(), seconds)

    def browser(self) -> Browser:
        """An operator's browser, logged in with what the welcome says."""
        origin = re.search(r"Admin +(http://\S+?)/admin/", self.output)
        password = re.search(r"Password +(\S+)", self.output)
        assert origin and password, self.output
        browser = Browser(origin[1])
        browser.submit("/admin/login/?next=/admin/agentturns/turn/", username="demo", password=password[1])
        return browser

    def clean_up(self) -> None:
        """End it if it still runs, and kill what a failed test left."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.terminate()
            self.process.wait(20)
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.close(self._near)
        self.process.wait(10)
        self._folder.cleanup()


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def running(*arguments: str, terminal: bool = False, **environment: str) -> Iterator[RunningDemo]:
    """A demo for the block; whatever happened in it, nothing of the demo is left afterwards."""
    demo = RunningDemo(*arguments, terminal=terminal, **environment)
    try:
        yield demo
    finally:
        demo.clean_up()
