"""The django-q2 cluster of a turn worker: its settings, and a sentinel that stops when the stop line is pulled."""

from __future__ import annotations

import ctypes
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
from agentturns.worker.stop_line import StopLine, listen_to

logger = logging.getLogger("agentturns")

_PR_SET_PDEATHSIG = 1


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
        # Signals to the worker are for its supervisor, which pulls the line; some managers send them to everyone.
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        listen_to(line)
        _die_with_this_process()
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
        # django-q2 has just set this to the default, under which a signal to the whole group ends turns mid-call.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        super().start()

    def guard(self) -> None:
        logger.info("cluster ready queue=%s processes=%s pid=%s", conf.QUEUE, self.pool_size, self.pid)
        super().guard()

    def stop(self) -> None:
        signal.signal(signal.SIGALRM, _kill_group)
        signal.setitimer(signal.ITIMER_REAL, max(self._grace, 0.001))
        super().stop()
        signal.setitimer(signal.ITIMER_REAL, 0)


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


def _die_with_this_process() -> None:
    """Have the kernel end the children of this process with it, where it can: orphans would swallow messages."""
    if sys.platform != "linux":
        return
    libc, parent = ctypes.CDLL(None), os.getpid()

    def after_fork() -> None:
        if os.getppid() == parent:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    os.register_at_fork(after_in_child=after_fork)
