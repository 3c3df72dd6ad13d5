"""Several threads that do something at the same moment, each on its own connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.db import connections


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    """What each action returned, or the exception it raised, in their order; none begins before all are ready."""
    ready = threading.Barrier(len(actions))
    outcomes: list[Any] = [None] * len(actions)

    def act(position: int, action: Callable[[], Any]) -> None:
        try:
            connections.close_all()
            ready.wait(30)
            outcomes[position] = action()
        except Exception as error:
            outcomes[position] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=act, args=pair) for pair in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return outcomes
