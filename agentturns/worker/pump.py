"""The pump: claims runnable turns for one process and runs them on threads, for one slice of time."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final

from django.db import Error, close_old_connections, connections

from agentturns import doorbell
from agentturns.conf import conf
from agentturns.engine.keeper import LeaseKeeper
from agentturns.engine.runner import run_claimed
from agentturns.models.claims import Claim, candidates
from agentturns.models.clock import database_now_plus
from agentturns.models.turn import Turn
from agentturns.worker.crew import Crew
from agentturns.worker.stop_line import stop_requested
from agentturns.worker.sweep import sweep_if_due

logger = logging.getLogger("agentturns")

LONGEST_RETRY_SECONDS: Final = 5.0
LAST_LOOK_SECONDS: Final = 1.0


class PumpEnd(Enum):
    """Why a pump ended."""

    IDLE = "nothing left to run"
    SLICE_OVER = "its slice is over"
    STOPPED = "it was told to stop"
    HUNG = "a tool call hangs on one of its threads, which only ends with the process"


class Pump:
    """Claims runnable turns and runs up to ``CONCURRENCY`` of them at once, for ``SLICE_SECONDS``.

    A turn that was running when a worker died runs alone until it has made progress: should it bring this process
    down too, it brings down no other turn. ``stop`` is asked at least every ``POLL_SECONDS``.
    """

    def __init__(self, *, stop: Callable[[], bool] = stop_requested) -> None:
        self.keeper = LeaseKeeper()
        self.ran = 0
        self._stop = stop
        self._crew = Crew()
        self._running: dict[int, Claim] = {}
        self._finished: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._suspect: Claim | None = None
        self._ends_at = 0.0
        self._sweeps_at = 0.0
        self._failures = 0

    def run(self, first: int | None = None) -> PumpEnd:
        """Run what is runnable, the turn ``first`` before others, until the slice is over or nothing is left.

        Returns when every turn is finished, parked or back in the queue; with ``HUNG`` when a call holds its thread
        for good, and then the process must not go on.
        """
        began = time.monotonic()
        self._ends_at = began + conf.SLICE_SECONDS
        with self.keeper.beating():
            try:
                end = self._serve(first)
                self._ring_for_rest(end)
            finally:
                self._drain()
                self._crew.dismiss(wait=not self._running)
        if self._running or end is PumpEnd.HUNG:
            # A call that came back at last has freed its thread, and the process may go on.
            end = PumpEnd.HUNG if self._running else PumpEnd.SLICE_OVER
        level = logging.INFO if self.ran else logging.DEBUG
        logger.log(level, "pump ended ran=%s seconds=%.1f because=%s", self.ran, time.monotonic() - began, end.name)
        return end

    def _serve(self, first: int | None) -> PumpEnd:
        while True:
            if self.keeper.hung.is_set():
                return PumpEnd.HUNG
            if self._stop():
                return PumpEnd.STOPPED
            left = self._ends_at - time.monotonic()
            if left <= 0:
                return PumpEnd.SLICE_OVER
            expects_more = self._look(first, left)
            first = None
            if not self._running and not expects_more:
                return PumpEnd.IDLE
            self._wait(min(self._pause(), left))

    # -- looking for turns ----------------------------------------------------------------------------------------

    def _look(self, first: int | None, left: float) -> bool:
        """Claim what there is room for; whether more is to be expected within ``left`` seconds."""
        try:
            seen = first is not None and self._take(first)
            seen = self._fill() or seen
            if time.monotonic() >= self._sweeps_at:
                self._sweeps_at = time.monotonic() + conf.SWEEP_SECONDS
                sweep_if_due()
            self._failures = 0
            return seen or (not self._running and _next_waiting(left) is not None)
        except Error as error:
            self._failures += 1
            logger.warning("pump cannot look for turns failures=%s error=%s", self._failures, type(error).__name__)
            connections[conf.DATABASE].close_if_unusable_or_obsolete()
            return True

    def _fill(self) -> bool:
        """Claim as many turns as there is room for; whether a runnable one was seen, even if another took it."""
        room = conf.CONCURRENCY - len(self._running)
        if room <= 0 or self._suspect_waits_for_progress() or self._makes_way():
            return True
        seen = False
        for turn_id in candidates(room, alone=not self._running, exclude=self._running):
            seen = True
            self._take(turn_id)
            if self._suspect_waits_for_progress():
                break
        return seen

    def _take(self, turn_id: int) -> bool:
        claim = self.keeper.claim(turn_id)
        if claim is None:
            return False
        self.ran += 1
        self._running[turn_id] = claim
        if claim.turn.crashes:
            self._suspect = claim
        self._crew.hand(partial(self._run, claim))
        return True

    def _suspect_waits_for_progress(self) -> bool:
        """Whether a turn that may bring the process down runs here."""
        return any(claim.turn.crashes for claim in self._running.values())

    def _makes_way(self) -> bool:
        """Whether a turn that is suspect no more is giving way to the next suspect, which must run alone too.

        Without it the many turns of one dead process would be taken up one a slice.
        """
        if self.keeper.stopping.is_set() and not self._running:
            self.keeper.stopping.clear()
        if len(self._running) != 1 or self._suspect not in self._running.values():
            self._suspect = None
        elif not self.keeper.stopping.is_set() and _suspect_in_line():
            self.keeper.stopping.set()
        return self.keeper.stopping.is_set()

    # -- running them ---------------------------------------------------------------------------------------------

    def _run(self, claim: Claim) -> None:
        """One claim's way through the engine, on a thread of the crew."""
        close_old_connections()
        try:
            run_claimed(claim, self.keeper)
        except BaseException:
            # The lease runs out once this process renews no lease of its own, at the latest when it ends. That counts
            # as a crash, and parks the turn as crash_loop when it happens again and again.
            logger.exception("turn=%s attempt=%s failed outside its tools and its model", claim.turn.pk, claim.attempt)
        finally:
            close_old_connections()
            self._finished.put(claim.turn.pk)

    def _pause(self) -> float:
        return min(LONGEST_RETRY_SECONDS, conf.POLL_SECONDS * 2 ** min(self._failures, 10))

    def _wait(self, seconds: float) -> None:
        """Until a turn has left its thread, at most ``seconds``."""
        try:
            self._running.pop(self._finished.get(timeout=seconds))
            while True:
                self._running.pop(self._finished.get_nowait())
        except queue.Empty:
            pass

    # -- leaving --------------------------------------------------------------------------------------------------

    def _ring_for_rest(self, end: PumpEnd) -> None:
        """One bell for what this pump leaves behind; a supervisor that stops its pumps rings for all of them."""
        if end is PumpEnd.STOPPED:
            return
        try:
            left_behind = _next_waiting(conf.SLICE_SECONDS) or next(iter(self._running), None)
            if left_behind is None and end is not PumpEnd.IDLE:
                left_behind = next(iter(candidates(1, alone=True)), None)
            if left_behind is not None:
                doorbell.ring(left_behind)
        except Error as error:
            logger.warning("pump cannot ring for what it leaves error=%s", type(error).__name__)
            connections[conf.DATABASE].close_if_unusable_or_obsolete()

    def _drain(self) -> None:
        """Let the turns yield at their next boundary; give up on those whose call was settled under a hung thread."""
        self.keeper.stopping.set()
        while self._running and not self._only_hung_left():
            self._wait(conf.POLL_SECONDS)
        last = time.monotonic() + LAST_LOOK_SECONDS
        while self._running and time.monotonic() < last:
            self._wait(conf.POLL_SECONDS)

    def _only_hung_left(self) -> bool:
        return self.keeper.hung.is_set() and all(claim.ended for claim in self._running.values())


def _next_waiting(within: float) -> int | None:
    """The queued turn whose wait ends next, if within so many seconds."""
    waiting = Turn.objects.queued().filter(run_after__lte=database_now_plus(within))
    return waiting.order_by("run_after").values_list("pk", flat=True).first()


def _suspect_in_line() -> bool:
    return Turn.objects.abandoned().exists() or Turn.objects.ready().filter(crashes__gt=0).exists()
