"""The demo's processes: each on a leash, so that none outlives the demo, however it ends."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from django.conf import settings

from project.desk.demo import leash
from project.desk.demo.failure import DemoFailed
from project.desk.demo.interrupts import uninterrupted

HOST: Final = "127.0.0.1"
WORKER_GRACE_SECONDS: Final = 3  # for turns to reach a boundary when the demo ends
PATIENCE_SECONDS: Final = 8  # until what did not end is killed; above the worker's own grace
LOG_LINES: Final = 25
PORTS_TO_TRY: Final = 20
START_SECONDS: Final = 15  # until the web server answers


class Child:
    """One running command. Its output goes to the file ``log``."""

    def __init__(self, name: str, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._leash = subprocess.Popen(
                [sys.executable, leash.__file__, str(PATIENCE_SECONDS), *command],
                cwd=settings.BASE_DIR,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._leash.poll()

    def let_go(self) -> None:
        """Begin to end it; :meth:`wait` returns once it is gone."""
        assert self._leash.stdin is not None
        with contextlib.suppress(OSError):
            self._leash.stdin.close()

    def kill(self) -> None:
        """End it as a crash would: SIGKILL, with no time to write anything."""
        assert self._leash.stdin is not None
        with contextlib.suppress(OSError):
            self._leash.stdin.write(b"k")
            self._leash.stdin.flush()
        self.wait()

    def wait(self) -> None:
        """Until all of it is gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._leash.wait(PATIENCE_SECONDS * 2)

    def require_alive(self) -> None:
        """Raise ``DemoFailed`` when it ended by itself."""
        if self.exit_code is not None:
            raise DemoFailed(f"The {self.name} ended by itself with exit code {self.exit_code}.", log=self.tail())

    def tail(self) -> str:
        """The last lines of its log."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            return "\n".join(lines)
        return ""


class Processes:
    """A ``with`` block around the demo's processes; at its end all of them are gone.

    ``directory`` takes their logs and e-mails; ``environment`` is added to this process's own.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.outbox = directory / "outbox"
        self._environment = {
            **environment,
            "DJANGO_SETTINGS_MODULE": "project.desk.demo.settings",
            "DEMO_OUTBOX": str(self.outbox),
            "PYTHONUNBUFFERED": "1",
        }
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        self.outbox.mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        with uninterrupted():
            for child in self._children:
                child.let_go()
            for child in self._children:
                child.wait()

    def start(self, name: str, *arguments: str, **environment: str) -> Child:
        """Run ``manage.py`` with ``arguments``."""
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments]
        log = self.directory / f"{name.replace(' ', '-')}.log"
        with uninterrupted():
            child = Child(name, command, {**self._environment, **environment}, log)
            self._children.append(child)
        return child

    def start_worker(self) -> Child:
        """The process that runs turns."""
        return self.start("worker", "turnworker", "--processes", "1", "--grace", str(WORKER_GRACE_SECONDS))

    def start_web(self, port: int) -> tuple[Child, int]:
        """The web server, and the port it answers on: ``port``, or the next one that nobody uses."""
        for candidate in [*range(port, min(port + PORTS_TO_TRY, 65_536)), 0]:
            chosen = _free(candidate)
            if not chosen:
                continue
            web = self.start("web server", "runserver", "--noreload", "--skip-checks", f"{HOST}:{chosen}")
            if _answers(web, chosen):
                return web, chosen
        raise DemoFailed(f"No port from {port} up is free for the web server; end what uses them, or name another.")

    def require_alive(self) -> None:
        """Raise ``DemoFailed`` when one that should run has ended."""
        for child in self._children:
            child.require_alive()

    def forget(self, child: Child) -> None:
        """Expect nothing more of a child that ended as it should."""
        self._children.remove(child)


def _free(port: int) -> int:
    """``port`` if nobody listens there, any free one for 0; 0 if it is taken."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, port))
            tried.listen(1)
        except (OSError, OverflowError):
            return 0
        return int(tried.getsockname()[1])


def _answers(web: Child, port: int) -> bool:
    """Wait until the web server listens; False when somebody else took its port first."""
    ends_at = time.monotonic() + START_SECONDS
    while time.monotonic() < ends_at:
        if web.exit_code is not None:
            if "already in use" in web.tail():
                return False
            web.require_alive()
        # Its own word, since an open port alone could be anybody's.
        if f":{port}/" in web.tail() and _connects(port):
            return True
        time.sleep(0.05)
    raise DemoFailed(f"The web server did not answer within {START_SECONDS} seconds.", log=web.tail())


def _connects(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def environment_without_keys() -> dict[str, str]:
    """This process's environment without any vendor's key, so that the scripted model is used."""
    return {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
