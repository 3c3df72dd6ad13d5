"""Waiting for a turn, for as long as the processes that should move it live."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from agentturns import Turn
from project.desk.demo.failure import DemoFailed
from project.desk.demo.processes import Child, Processes

LOOK_SECONDS: Final = 0.05


def wait_until(turn: Turn, is_there: Callable[[Turn], bool], processes: Processes, *, seconds: float) -> bool:
    """Whether ``is_there(turn)`` came true within ``seconds``; raises ``DemoFailed`` when a process ended."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        turn.refresh_from_db()
        if is_there(turn):
            return True
        processes.require_alive()
        time.sleep(LOOK_SECONDS)
    return False


def require(
    turn: Turn, is_there: Callable[[Turn], bool], processes: Processes, worker: Child, *, what: str, seconds: float
) -> None:
    """Wait until ``is_there(turn)``, or raise ``DemoFailed`` naming ``what`` was to happen and the worker's log."""
    if wait_until(turn, is_there, processes, seconds=seconds):
        return
    state = f"{turn.status} {turn.park_reason}".strip()
    raise DemoFailed(
        f"Turn {turn.pk} should have {what} within {seconds:g} seconds, but it is {state}. "
        f"{turn.waiting_for or turn.error_message}".strip(),
        log=worker.tail(),
    )
