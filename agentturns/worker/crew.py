"""The threads on which one process runs its turns."""

from __future__ import annotations

import contextvars
import itertools
import queue
import threading
from collections.abc import Callable

from django.db import connections

_numbers = itertools.count(1)


class Crew:
    """Threads that take work in turn; each keeps its database connections from one turn to the next.

    A thread starts when there is work that no idle one could take, and ends, closing its connections, with
    :meth:`dismiss`. Work runs in a copy of the context in which it was handed over.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._lock = threading.Lock()

    def hand(self, work: Callable[[], None]) -> None:
        """Have ``work``, which must not raise, done by a thread at once."""
        with self._lock:
            self._busy += 1
            if self._busy > len(self._threads):
                # A daemon: a call that hangs for ever must not keep the process from ending.
                name = f"agentturns-turns-{next(_numbers)}"
                thread = threading.Thread(target=self._take_turns, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
        context = contextvars.copy_context()
        self._work.put(lambda: context.run(work))

    def dismiss(self, *, wait: bool) -> None:
        """End the threads once their work is done; with ``wait`` return after the last has ended."""
        for _ in self._threads:
            self._work.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _take_turns(self) -> None:
        try:
            while (work := self._work.get()) is not None:
                try:
                    work()
                finally:
                    with self._lock:
                        self._busy -= 1
        finally:
            connections.close_all()
