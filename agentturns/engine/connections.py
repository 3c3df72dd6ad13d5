"""What the engine must know of a database connection beneath Django's: whether it is lost, and how to break it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from django.db import InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from agentturns.conf import conf

# SQLSTATE: deadlock, serialization failure, lock not available
_RETRY_STATES: Final = frozenset({"40P01", "40001", "55P03"})
# SQLSTATE: shut down, crashed, starting up, idle or open for too long in a transaction; libpq may tell only later
# that such a connection is closed.
_LOST_STATES: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"})
_WRITES: Final = ("insert", "update", "delete", "merge", "replace", "create", "alter", "drop", "truncate", "copy")


@dataclass(frozen=True, slots=True)
class Breakable:
    """A connection in a transaction, as another thread needs it to break that transaction."""

    vendor: str
    raw: Any
    backend_pid: int | None


def breakable(connection: BaseDatabaseWrapper) -> Breakable:
    """A handle on ``connection``'s present raw connection."""
    raw = connection.connection
    pid = raw.info.backend_pid if connection.vendor == "postgresql" else None
    return Breakable(connection.vendor, raw, pid)


def break_transaction(handle: Breakable) -> None:
    """End another thread's transaction without its help; whatever it does next on that connection fails."""
    if handle.vendor == "sqlite":
        handle.raw.interrupt()
        handle.raw.close()
    elif handle.backend_pid is not None:
        with connections[conf.DATABASE].cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [handle.backend_pid])


def is_contention(error: BaseException) -> bool:
    """Whether the error means "somebody else held a lock": the same work may succeed when run again."""
    if not isinstance(error, OperationalError):
        return False
    cause = error.__cause__
    return getattr(cause, "sqlstate", None) in _RETRY_STATES or "is locked" in str(error)


def is_lost(error: BaseException, connection: BaseDatabaseWrapper) -> bool:
    """Whether the error means that the connection, or the database behind it, has gone."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    if connection.vendor == "sqlite":
        return False
    # Without a state of the server's it is libpq that lost it; Django may have reconnected already by now.
    if getattr(error.__cause__, "sqlstate", None) in (None, *_LOST_STATES):
        return True
    return connection.connection is None or bool(connection.connection.closed)


def in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Whether the raw connection still is inside the transaction that Django opened on it."""
    raw = connection.connection
    if raw is None:
        return False
    if connection.vendor == "sqlite":
        return bool(raw.in_transaction)
    if connection.vendor == "postgresql":
        return int(raw.info.transaction_status) in (1, 2)  # libpq: ACTIVE, INTRANS
    return True


class ForeignWrite(Exception):
    """A transactional tool wrote to a database that its transaction does not cover."""


@contextmanager
def only_this_database() -> Iterator[list[str]]:
    """Refuse writes of this thread on every other alias; gives the list of aliases on which one was tried."""
    tried: list[str] = []

    def guard(alias: str) -> Any:
        def refuse_writes(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
            if str(sql).lstrip().split(None, 1)[:1] and str(sql).lstrip().split(None, 1)[0].lower() in _WRITES:
                tried.append(alias)
                raise ForeignWrite(
                    f"a transactional tool wrote to the database {alias!r}, which its transaction on {conf.DATABASE!r} "
                    "does not cover; declare the tool at_most_once or idempotent instead"
                )
            return execute(sql, params, many, context)

        return refuse_writes

    others = [connections[alias] for alias in connections if alias != conf.DATABASE]
    wrappers = [(other, guard(other.alias)) for other in others]
    for other, wrapper in wrappers:
        other.execute_wrappers.append(wrapper)
    try:
        yield tried
    finally:
        for other, wrapper in wrappers:
            other.execute_wrappers.remove(wrapper)
