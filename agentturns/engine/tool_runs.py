"""Running one tool call, by the effect it declares."""

from __future__ import annotations

import contextvars
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from asgiref.sync import async_to_sync
from django.db import DatabaseError, InterfaceError, connections, transaction
from django.utils import timezone

from agentturns.conf import conf
from agentturns.definitions.state import TurnState, current_tool_call, current_tool_name
from agentturns.definitions.tools import Tool
from agentturns.engine import ledger
from agentturns.engine.connections import (
    Breakable,
    breakable,
    in_transaction,
    is_contention,
    is_lost,
    only_this_database,
)
from agentturns.engine.durable import durably
from agentturns.engine.keeper import LeaseKeeper
from agentturns.engine.results import CallOutcome, failed, raised, returned, timed_out
from agentturns.exceptions import LeaseLost
from agentturns.models.claims import Claim, renew
from agentturns.models.lifecycle import locked
from agentturns.models.states import CallStatus
from agentturns.models.tool_call import ToolCall

RERUNS: Final = 5
LOST_TRANSACTION: Final = (
    "Error: the database transaction of this call was ended while the tool ran, so nothing it changed can be relied "
    "on; it is not recorded as done."
)


class _Undo(Exception):
    """Rolls the transaction of a failed transactional call back; carries its outcome."""

    def __init__(self, outcome: CallOutcome) -> None:
        super().__init__()
        self.outcome = outcome


class ToolRun:
    """One taken-up, permitted call with validated ``values``, run to its outcome."""

    def __init__(
        self,
        claim: Claim,
        keeper: LeaseKeeper,
        call: ToolCall,
        tool: Tool,
        values: dict[str, Any],
        state: TurnState,
    ) -> None:
        self._claim = claim
        self._keeper = keeper
        self._call = call
        self._tool = tool
        self._values = dict(values)
        if tool.state_parameter:
            self._values[tool.state_parameter] = state
        self._seconds = float(tool.timeout if tool.timeout is not None else conf.TOOL_TIMEOUT)

    def run(self) -> None:
        """Run the call and record its outcome. Raises ``LeaseLost``."""
        if self._call.effect == "transactional":
            self._transactional()
            return
        if self._call.effect == "at_most_once":
            ledger.start_call(self._claim, self._call)
        self._settle(self._outcome(None))

    def _settle(self, outcome: CallOutcome) -> None:
        ledger.settle_call(self._claim, self._call, outcome)

    def _outcome(self, connection: Breakable | None) -> CallOutcome:
        """Call the tool's own code, in a context of its own, under the watch of its deadline."""
        self._claim.require()
        with self._keeper.watching(self._claim, self._call, self._seconds, connection) as watched:
            try:
                outcome = returned(contextvars.copy_context().run(self._invoke), halts=self._tool.halts)
            except (Exception, SystemExit) as error:
                if self._call.effect == "transactional" and (is_contention(error) or self._is_lost(error)):
                    raise
                outcome = raised(error)
            return timed_out(self._call.effect, self._seconds) if watched.overdue else outcome

    def _invoke(self) -> Any:
        current_tool_call.set(self._call)
        current_tool_name.set(self._call.name)
        function: Callable[..., Any] = self._tool.function
        return async_to_sync(function)(**self._values) if self._tool.is_async else function(**self._values)

    def _is_lost(self, error: BaseException) -> bool:
        return is_lost(error, connections[conf.DATABASE])

    def _transactional(self) -> None:
        """Effect, outcome and fence in one transaction; a lock conflict or a lost connection runs all of it again."""
        for rerun in range(RERUNS + 1):
            self._claim.require()
            attempt = _Attempt(self._claim, self._keeper, self._call)
            try:
                return attempt.commit(self._outcome)
            except _Undo as undo:
                return self._settle(undo.outcome)
            except (DatabaseError, InterfaceError) as error:
                lost = self._is_lost(error)
                if attempt.committing and lost and self._committed(attempt):
                    return ledger.note_progress(self._claim, self._call, attempt.columns)
                if rerun == RERUNS or not (lost or is_contention(error)):
                    return self._settle(raised(error))
            connections[conf.DATABASE].close_if_unusable_or_obsolete()
            time.sleep(min(1.0, 0.02 * 2**rerun))
        raise AssertionError("unreachable")

    def _committed(self, attempt: _Attempt) -> bool:
        """After a connection was lost during COMMIT: whether the commit went through, read under the turn's lock."""

        def look(again: bool) -> bool:
            with locked(self._claim.turn.pk, self._claim.turn.session_id):
                return ToolCall.objects.filter(pk=self._call.pk, run_token=attempt.token).exists()

        connections[conf.DATABASE].close_if_unusable_or_obsolete()
        return durably(self._claim, look)


class _Attempt:
    """One transaction around one run of a transactional tool."""

    def __init__(self, claim: Claim, keeper: LeaseKeeper, call: ToolCall) -> None:
        self._claim = claim
        self._keeper = keeper
        self._call = call
        self.token = uuid.uuid4().hex
        self.committing = False
        self.columns: dict[str, Any] = {}

    def commit(self, run: Callable[[Breakable | None], CallOutcome]) -> None:
        """Run the tool and record it, or raise ``_Undo`` with the outcome of a call whose work is undone."""
        connection = connections[conf.DATABASE]
        outermost = not connection.in_atomic_block
        began = time.monotonic()
        with transaction.atomic(using=conf.DATABASE, durable=True):
            self._open(connection, limit_idle=outermost)
            with only_this_database() as foreign:
                outcome = run(breakable(connection) if outermost else None)
            if outcome.status != CallStatus.COMPLETED:
                raise _Undo(outcome)
            if foreign:
                raise _Undo(
                    failed(f"Error: a write on the database {foreign[0]!r} is outside this tool's transaction.")
                )
            if not in_transaction(connection) or connection.needs_rollback:
                raise _Undo(failed(LOST_TRANSACTION))
            self._close(connection, outcome, began)
            self.committing = True
        ledger.note_progress(self._claim, self._call, self.columns)

    def _open(self, connection: Any, *, limit_idle: bool) -> None:
        """Write a fresh run token first: whoever completes the call must find it, so a lost transaction shows."""
        if connection.vendor == "postgresql" and limit_idle:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT set_config('idle_in_transaction_session_timeout', %s, true)",
                    [str(int(conf.LEASE_SECONDS * 1000))],
                )
        opened = ToolCall.objects.filter(pk=self._call.pk, status=CallStatus.PENDING).update(
            run_token=self.token, started_at=timezone.now()
        )
        if not opened:
            raise LeaseLost(f"Call {self._call.pk} is no longer pending.")

    def _close(self, connection: Any, outcome: CallOutcome, began: float) -> None:
        self.columns = ledger.outcome_columns(outcome)
        completed = ToolCall.objects.filter(pk=self._call.pk, status=CallStatus.PENDING, run_token=self.token).update(
            **self.columns
        )
        if not completed:
            raise _Undo(failed(LOST_TRANSACTION))
        if connection.vendor == "sqlite" and time.monotonic() - began > conf.LEASE_SECONDS / 10:
            # The heartbeat could not write while this transaction held the only write lock.
            since = time.monotonic()
            renew(self._claim.owner)
            transaction.on_commit(lambda: self._keeper.extend_all(since), using=conf.DATABASE)
        self._claim.fence(**ledger.PROGRESS)
