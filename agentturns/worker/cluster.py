"""The django-q2 cluster of a turn worker: its settings, and a sentinel that stops when the stop line is pulled."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import uuid
from typing import Any, NoReturn

from django.conf import settings
from django_q.cluster import Sentinel
from django_q.conf import Conf

from agentturns.conf import conf
from agentturns.worker.forking import children_die_with_this_process, leave_databases
from agentturns.worker.stop_line import StopLine, listen_to

logger = logging.getLogger("agentturns")


def serve(line: StopLine, *, processes: int | None, grace: float) -> NoReturn:
    """Be the cluster, in a process of its own that leads a process group, until ``line`` is pulled.

    ``processes`` is how many turns' processes there are, None for as many as ``Q_CLUSTER`` says. Ends the process:
    with 0 after an orderly stop, with 1 when the cluster failed. After ``grace`` seconds of stopping everything in
    the group is killed.
    """
    code = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        _disregard_stop_signals()
        listen_to(line)
        # Orphans would go on to take messages, and leave the turns to nobody.
        children_die_with_this_process()
        _configure(processes)
        _TurnSentinel(line, grace)
        code = 0
    except BaseException:
        logger.exception("cluster failed queue=%s", conf.QUEUE)
    finally:
        # Not the interpreter's way out: it would wait for children that are never going to end.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class _TurnSentinel(Sentinel):  # type: ignore[misc]  # django-q2 has no types
    """django-q2's sentinel, run by the supervisor's child itself, without django-q2's own main process between."""

    def __init__(self, line: StopLine, grace: float) -> None:
        self._grace = grace
        super().__init__(line, threading.Event(), uuid.uuid4())

    def start(self) -> None:
        _disregard_stop_signals()  # django-q2 has just set them otherwise
        super().start()

    def spawn_process(self, target: Any, *args: Any) -> Any:
        leave_databases()
        return super().spawn_process(target, *args)

    def guard(self) -> None:
        logger.info("cluster ready queue=%s processes=%s pid=%s", conf.QUEUE, self.pool_size, self.pid)
        super().guard()

    def stop(self) -> None:
        signal.signal(signal.SIGALRM, _kill_group)
        signal.setitimer(signal.ITIMER_REAL, max(self._grace, 0.001))
        super().stop()
        signal.setitimer(signal.ITIMER_REAL, 0)


def _disregard_stop_signals() -> None:
    """Leave them to the supervisor, which pulls the line; some process managers send them to every process.

    Not ``SIG_IGN``: programs that tools start would inherit that, and could not be terminated.
    """
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda *_: None)


def _kill_group(*_: Any) -> None:
    logger.warning("cluster killed: turns were still inside a call when its time to stop was over")
    logging.shutdown()
    os.killpg(0, signal.SIGKILL)


def _configure(processes: int | None) -> None:
    """Make django-q2's settings, read long ago for the project's own queue, those of the turns' queue."""
    given: dict[str, Any] = getattr(settings, "Q_CLUSTER", {})
    # What waits in memory here no other host can take.
    own = {"queue_limit": 1, "bulk": 1, **given.get("ALT_CLUSTERS", {}).get(conf.QUEUE, {})}
    if processes is not None:
        own["workers"] = processes
    for name, value in own.items():
        if hasattr(Conf, name.upper()):
            setattr(Conf, name.upper(), value)
    Conf.CLUSTER_NAME = conf.QUEUE
    Conf.SYNC = False
