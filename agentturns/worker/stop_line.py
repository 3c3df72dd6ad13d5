"""The stop line: how every process of a worker learns that it shall stop, even when nobody is left to say so."""

from __future__ import annotations

import os
import select


class StopLine:
    """A pipe on which nothing is ever written: it is pulled when its far end closes.

    One process, the supervisor, holds the far end. Processes forked from it listen. The supervisor pulls the line by
    closing that end, and the operating system does the same when it dies. Stands in for a ``multiprocessing.Event``
    that only the supervisor sets, without the lock that a killed process could take with it.
    """

    def __init__(self) -> None:
        self._near, self._far = os.pipe()
        self._holds_far = True

    def pull(self) -> None:
        """Tell every listener to stop. Harmless when done already."""
        if self._holds_far:
            self._holds_far = False
            os.close(self._far)

    def listen(self) -> None:
        """Give up the far end, which a forked process inherits: with it held here the line could never be pulled."""
        self.pull()

    def is_set(self) -> bool:
        """Whether the line is pulled."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds for the line to be pulled; whether it is."""
        poller = select.poll()
        poller.register(self._near, select.POLLIN)
        return bool(poller.poll(None if timeout is None else timeout * 1000))


_listened_to: StopLine | None = None


def listen_to(line: StopLine) -> None:
    """Make ``line`` the one that this process, and every process forked from it, obeys."""
    global _listened_to
    line.listen()
    _listened_to = line


def stop_requested() -> bool:
    """Whether this process was told to stop. Never, where no supervisor started it."""
    return _listened_to is not None and _listened_to.is_set()
