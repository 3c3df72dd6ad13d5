"""Where a tool in a worker tells the test that it has begun, and waits until the test lets it go on."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass

WAIT_SECONDS = 60


def report_inside(tool: str) -> None:
    """Say which tool this is, of which process, and wait while the test holds it; at once when nobody holds."""
    address = os.environ.get("SHOP_DOOR")
    if not address:
        return
    host, _, port = address.partition(":")
    with suppress(ConnectionError), socket.create_connection((host, int(port)), timeout=WAIT_SECONDS) as line:
        line.sendall(f"{tool} {os.getpid()}\n".encode())
        line.recv(1)


@dataclass(frozen=True)
class Held:
    """A tool that is under way in the process ``pid``, held until it is let go."""

    tool: str
    pid: int
    _line: socket.socket

    def let_go(self) -> None:
        """Let the tool return."""
        self._line.close()


class Door:
    """The test's side: it holds every tool that reports, until it is opened. ``address`` is for the environment."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._held: list[Held] = []
        host, port = self._listener.getsockname()
        self.address = f"{host}:{port}"

    def inside(self, seconds: float = 30) -> Held:
        """The next tool that has begun. Raises ``TimeoutError`` when none does."""
        self._listener.settimeout(seconds)
        line, _ = self._listener.accept()
        line.settimeout(seconds)
        tool, pid = line.makefile().readline().split()
        self._held.append(Held(tool, int(pid), line))
        return self._held[-1]

    def open(self) -> None:
        """Let everything go that is held, and hold nothing from now on."""
        self._listener.close()
        for held in self._held:
            held.let_go()
