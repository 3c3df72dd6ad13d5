"""What django-q2 calls: the doorbell's message and the schedule's."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys

from agentturns.worker.pump import Pump, PumpEnd

logger = logging.getLogger("agentturns")


def run_turns(turn_id: int | None = None) -> None:
    """Pump: run the turn that was rung for, and whatever else is runnable, for a slice of time."""
    if Pump().run(turn_id) is PumpEnd.HUNG:
        _leave_process()


def sweep() -> None:
    """Pump without having been rung for: a pump sweeps when that is due, and waits for back-offs within its slice."""
    run_turns()


def _leave_process() -> None:
    """End this worker process, whose thread hangs in foreign code; django-q2 starts another in its place."""
    if multiprocessing.parent_process() is None:
        logger.error("process=%s keeps a thread that hangs in a tool; restart it", os.getpid())
        return
    logger.error("process=%s leaves, since a thread hangs in a tool", os.getpid())
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
