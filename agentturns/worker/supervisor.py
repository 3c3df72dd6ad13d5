"""The supervisor: one process that starts the cluster in a process group of its own and leaves nothing of it behind."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from typing import Final

from django.db import Error, connections

from agentturns.conf import conf
from agentturns.worker.forking import leave_databases
from agentturns.worker.stop_line import StopLine
from agentturns.worker.sweep import ring_for_runnable

logger = logging.getLogger("agentturns")

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LOOK_SECONDS: Final = 0.5
# The cluster kills itself when its grace is over; this much later its supervisor does.
MARGIN_SECONDS: Final = 2.0
ONE_GESTURE_SECONDS: Final = 1.0
LAST_BELL_SECONDS: Final = 5.0


class Supervisor:
    """Runs the cluster that runs the turns.

    ``processes`` None means as many as ``Q_CLUSTER`` says. ``grace`` is how many seconds turns have, after a signal to
    stop, to reach their next boundary; then they are cut off, and taken over once their leases expire. A signal that
    comes a second or more after the first cuts them off at once.
    """

    def __init__(self, *, processes: int | None = None, grace: float = 25.0) -> None:
        self._processes = processes
        self._grace = grace

    def run(self) -> int:
        """Until a signal or the cluster's own end; the exit code: 0 when a signal ended it, else 1."""
        from agentturns.worker.cluster import serve

        leave_databases()
        line = StopLine()
        cluster = multiprocessing.get_context("fork").Process(
            target=serve,
            args=(line,),
            kwargs={"processes": self._processes, "grace": self._grace},
            name="turnworker",
        )
        with _signals() as heard:
            cluster.start()
            assert cluster.pid is not None
            with contextlib.suppress(OSError):
                os.setpgid(cluster.pid, cluster.pid)  # the child does so too; whoever comes first
            try:
                asked = self._attend(cluster, heard)
                line.pull()
                if asked:
                    self._await_end(cluster, heard)
            finally:
                _end_group(cluster.pid)
                cluster.join()
        if not asked:
            logger.error("turnworker failed: its cluster ended by itself exitcode=%s", cluster.exitcode)
            return 1
        _ring_once()
        logger.info("turnworker stopped queue=%s", conf.QUEUE)
        return 0

    def _attend(self, cluster: multiprocessing.process.BaseProcess, heard: _Signals) -> bool:
        """Wait for a signal (True) or for the cluster to end by itself (False)."""
        while cluster.is_alive():
            if name := heard.wait(LOOK_SECONDS):
                logger.info("turnworker stopping signal=%s grace=%gs", name, self._grace)
                return True
        return False

    def _await_end(self, cluster: multiprocessing.process.BaseProcess, heard: _Signals) -> None:
        began = time.monotonic()
        while cluster.is_alive() and time.monotonic() < began + self._grace + MARGIN_SECONDS:
            name = heard.wait(LOOK_SECONDS / 5)
            # Ctrl-C reaches this process twice when its parent passes it on.
            if name and time.monotonic() > began + ONE_GESTURE_SECONDS:
                logger.warning("turnworker cuts its turns off signal=%s", name)
                return


class _Signals:
    """The stop signals of this process, heard through a pipe: no work is done inside a handler."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def wait(self, seconds: float) -> str:
        """The name of a stop signal that came within ``seconds``, else ""."""
        if not select.select([self._pipe], [], [], seconds)[0]:
            return ""
        came = os.read(self._pipe, 1)[0]
        return signal.Signals(came).name if came in STOP_SIGNALS else ""


@contextlib.contextmanager
def _signals() -> Iterator[_Signals]:
    near, far = os.pipe()
    os.set_blocking(far, False)
    wakeup = signal.set_wakeup_fd(far)
    # SIGHUP that was being ignored when we started, as under nohup, stays so. SIGINT is heeded all the same: a shell
    # without a terminal ignores it for what it starts in the background, where somebody may still send it on purpose.
    before = {each: signal.getsignal(each) for each in STOP_SIGNALS}
    heeded = {each: old for each, old in before.items() if old is not signal.SIG_IGN or each is not signal.SIGHUP}
    for each in heeded:
        signal.signal(each, lambda *_: None)
    try:
        yield _Signals(near)
    finally:
        for each, old in heeded.items():
            signal.signal(each, old)
        signal.set_wakeup_fd(wakeup)
        os.close(near)
        os.close(far)


def _end_group(group: int) -> None:
    """Kill what is left of the cluster's process group, and wait until it is gone."""
    patience = time.monotonic() + MARGIN_SECONDS
    while time.monotonic() < patience:
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-group, os.WNOHANG)
        time.sleep(0.01)


def _ring_once() -> None:
    """Ring for turns that were given back while nobody here was left to hear it: another host may."""

    def ring() -> None:
        try:
            ring_for_runnable(most=1)
        except Error as error:
            logger.warning("turnworker cannot ring for what it leaves error=%s", type(error).__name__)
        finally:
            connections.close_all()

    # A database that does not answer must not keep this process from ending.
    bell = threading.Thread(target=ring, daemon=True)
    bell.start()
    bell.join(LAST_BELL_SECONDS)
