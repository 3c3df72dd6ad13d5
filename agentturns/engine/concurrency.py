"""Several tool calls of one batch at once, each on a thread and a database connection of its own."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Sequence

from django.db import connections

from agentturns.models.tool_call import ToolCall


def allowed_width(requested: int | None, *, can_ask: bool) -> int | None:
    """How many calls may run at once, None for one at a time.

    A turn of which a tool can ask a person runs its calls one by one, so that a person decides on what has happened
    and not on what is happening.
    """
    return None if requested is None or requested <= 1 or can_ask else requested


def run_concurrently(
    calls: Sequence[ToolCall], width: int, run: Callable[[ToolCall], object], may_go_on: Callable[[], bool]
) -> None:
    """Run each call by ``run``, at most ``width`` at once, begun in their order; stop beginning when told so.

    Returns when every begun call has ended. Raises the first exception that a run raised; the rest then begin no
    further call.
    """
    waiting = deque(calls)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def take() -> ToolCall | None:
        with lock:
            return waiting.popleft() if waiting and not failures else None

    def work() -> None:
        try:
            while (call := take()) is not None and may_go_on():
                run(call)
        except BaseException as error:
            with lock:
                failures.append(error)
        finally:
            connections.close_all()

    threads = [
        # Pool threads would inherit no context variables; each thread gets a copy of the turn's.
        threading.Thread(target=contextvars.copy_context().run, args=(work,), name=f"agentturns-tool-{number}")
        for number in range(min(width, len(calls)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
