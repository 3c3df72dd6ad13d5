"""One process's leases: renewed by one thread on its own connection, which also watches for overdue tool calls."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from django.db import DatabaseError, InterfaceError, connections

from agentturns.conf import conf
from agentturns.engine.connections import Breakable, break_transaction
from agentturns.exceptions import LeaseLost
from agentturns.models.claims import Claim, claim, renew
from agentturns.models.tool_call import ToolCall

logger = logging.getLogger("agentturns")

RENEWALS_PER_LEASE: Final = 4
GRACE_SECONDS: Final = 0.2  # a call that returns this late is settled by its own thread, not by the watch


@dataclass(eq=False)
class WatchedCall:
    """A tool call under way. ``deadline`` is on the monotonic clock, in seconds."""

    claim: Claim
    call: ToolCall
    seconds: float
    deadline: float
    connection: Breakable | None

    @property
    def overdue(self) -> bool:
        """Whether the call has used up its time."""
        return time.monotonic() > self.deadline


class LeaseKeeper:
    """Holds the claims of this process and keeps them alive.

    ``stopping`` asks turns to yield at their next boundary. ``hung`` is set once a tool call overran its deadline
    without returning: its thread cannot be ended, so the process should claim no more, drain and leave.
    """

    def __init__(self) -> None:
        self.owner = f"{socket.gethostname()[:50]}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
        self.stopping = threading.Event()
        self.hung = threading.Event()
        self._claims: dict[int, Claim] = {}
        self._watched: set[WatchedCall] = set()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def claim(self, turn_id: int) -> Claim | None:
        """Claim the turn and keep its lease alive until :meth:`release`; None when it is not to be had."""
        taken = claim(turn_id, self.owner)
        if taken is not None:
            with self._lock:
                self._claims[turn_id] = taken
        return taken

    def release(self, ended: Claim) -> None:
        """Stop renewing ``ended``."""
        with self._lock:
            if self._claims.get(ended.turn.pk) is ended:
                del self._claims[ended.turn.pk]

    @contextmanager
    def beating(self) -> Iterator[LeaseKeeper]:
        """Renew the leases from a thread of its own inside the block."""
        self._thread = threading.Thread(target=self._beat, name="agentturns-heartbeat", daemon=True)
        self._thread.start()
        try:
            yield self
        finally:
            self._closing.set()
            self._wake.set()
            self._thread.join()
            self._thread = None

    @contextmanager
    def watching(
        self, holder: Claim, call: ToolCall, seconds: float, connection: Breakable | None
    ) -> Iterator[WatchedCall]:
        """Watch one tool call; past its deadline it is settled and its turn given back while its thread hangs."""
        watched = WatchedCall(holder, call, seconds, time.monotonic() + seconds, connection)
        with self._lock:
            self._watched.add(watched)
        if self._thread is not None:
            self._wake.set()
        try:
            yield watched
        finally:
            with self._lock:
                self._watched.discard(watched)

    def extend_all(self, since: float) -> None:
        """Note that every lease of this process was renewed at ``since`` on the monotonic clock."""
        with self._lock:
            for held in self._claims.values():
                held.deadline = max(held.deadline, since + conf.LEASE_SECONDS)

    def _beat(self) -> None:
        try:
            renew_at = time.monotonic() + conf.LEASE_SECONDS / RENEWALS_PER_LEASE
            while not self._closing.is_set():
                self._wake.wait(max(0.01, min(renew_at, self._next_deadline()) - time.monotonic()))
                self._wake.clear()
                self._settle_overdue()
                if time.monotonic() >= renew_at:
                    every = conf.LEASE_SECONDS / RENEWALS_PER_LEASE
                    renew_at = time.monotonic() + (every if self._renewed() else every / 4)
        finally:
            connections[conf.DATABASE].close()

    def _renewed(self) -> bool:
        since = time.monotonic()
        with self._lock:
            if not self._claims:
                return True
        try:
            ids = renew(self.owner)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("owner=%s heartbeat failed error=%s", self.owner, type(error).__name__)
            connections[conf.DATABASE].close_if_unusable_or_obsolete()
            return False
        with self._lock:
            for turn_id in ids & self._claims.keys():
                held = self._claims[turn_id]
                held.deadline = max(held.deadline, since + conf.LEASE_SECONDS)
        return True

    def _next_deadline(self) -> float:
        with self._lock:
            return min((w.deadline + GRACE_SECONDS for w in self._watched), default=float("inf"))

    def _settle_overdue(self) -> None:
        from agentturns.engine.ledger import give_up_call

        now = time.monotonic()
        with self._lock:
            overdue = [watched for watched in self._watched if now > watched.deadline + GRACE_SECONDS]
        for watched in overdue:
            self.hung.set()
            logger.error(
                "turn=%s call=%s tool=%s hung after=%ss",
                watched.claim.turn.pk,
                watched.call.pk,
                watched.call.name,
                watched.seconds,
            )
            try:
                if watched.connection is not None:
                    break_transaction(watched.connection)
                give_up_call(watched.claim, watched.call, watched.seconds)
            except LeaseLost:
                pass
            except Exception as error:
                # Whatever it is, this thread must live: it keeps every other lease of the process.
                logger.warning("call=%s not settled yet error=%s", watched.call.pk, type(error).__name__)
                connections[conf.DATABASE].close_if_unusable_or_obsolete()
                watched.deadline = now + 1
                continue
            with self._lock:
                self._watched.discard(watched)
