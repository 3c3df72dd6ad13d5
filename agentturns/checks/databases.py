"""The database of the turns: the settings with which several processes and threads are safe on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Warning
from django.db import connections

from agentturns.checks.table import Row, number, reported
from agentturns.checks.values import with_valid_values
from agentturns.conf import conf

SHORTEST_BUSY_WAIT = 10  # seconds; workers that write in turn wait for one another
STRICT_ISOLATION = {3: "REPEATABLE READ", 4: "SERIALIZABLE"}  # the values of psycopg.IsolationLevel


@with_valid_values
def check_database(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """The entry of ``DATABASES`` that holds the turns, without a query."""
    if conf.DATABASE not in connections.settings:
        return [
            Error(
                f"AGENTTURNS['DATABASE'] is {conf.DATABASE!r}, which is no key of DATABASES.",
                hint=f"Name one of {', '.join(sorted(connections.settings))}.",
                id="agentturns.E020",
            )
        ]
    connection = connections[conf.DATABASE]
    if connection.vendor == "sqlite":
        return reported(_sqlite(connection.settings_dict))
    if connection.vendor == "postgresql":
        return reported(_postgres(connection.settings_dict))
    return [
        Warning(
            f"The turns are on {connection.display_name}; agentturns is tested on SQLite and PostgreSQL only.",
            hint="Move them to one of the two, or silence this message when your own tests cover crashes and races.",
            id="agentturns.W020",
        )
    ]


def _sqlite(database: dict[str, Any]) -> list[Row]:
    options = database.get("OPTIONS") or {}
    where = f"DATABASES[{conf.DATABASE!r}]"
    name = str(database.get("NAME"))
    mode = str(options.get("transaction_mode") or "DEFERRED").upper()
    wait = number(options.get("timeout", 5))
    # Django's own test database is another matter: drain() runs turns there on the test's own connection.
    in_memory = name == ":memory:" or ("mode=memory" in name and "memorydb_" not in name)
    return [
        (
            in_memory,
            Warning(
                f"{where} is in memory: each worker process sees an empty one of its own, and its locks fail threads.",
                hint="Name a file; for tests, name one in DATABASES[…]['TEST']['NAME'].",
                id="agentturns.W021",
            ),
        ),
        (
            mode not in ("IMMEDIATE", "EXCLUSIVE"),
            Warning(
                f"{where} begins {mode} transactions; one that reads before it writes fails at once with "
                "'database is locked' when another process writes meanwhile.",
                hint="Set OPTIONS['transaction_mode'] to 'IMMEDIATE'.",
                id="agentturns.W022",
            ),
        ),
        (
            wait is None or wait < SHORTEST_BUSY_WAIT,
            Warning(
                f"{where} waits {options.get('timeout', 5)!r} seconds for another writer before it fails with "
                "'database is locked'.",
                hint="Set OPTIONS['timeout'] to 20.",
                id="agentturns.W023",
            ),
        ),
        (
            not in_memory and not re.search(r"journal_mode\s*[=(]\s*'?wal", str(options.get("init_command")), re.I),
            Warning(
                f"{where} does not ask for write-ahead logging, so readers and the writer block one another.",
                hint="Set OPTIONS['init_command'] to 'PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL'.",
                id="agentturns.W024",
            ),
        ),
    ]


def _postgres(database: dict[str, Any]) -> list[Row]:
    options = database.get("OPTIONS") or {}
    where = f"DATABASES[{conf.DATABASE!r}]"
    pooled = bool(options.get("pool"))
    age = database.get("CONN_MAX_AGE", 0)
    strict = _strict_isolation(options)
    return [
        (
            bool(strict),
            Error(
                f"{where} runs transactions as {strict}, where claims and decisions made at once fail instead of "
                "waiting for one another.",
                hint="Leave the isolation level at READ COMMITTED.",
                id="agentturns.E021",
            ),
        ),
        (
            pooled and age != 0,
            Error(
                f"{where} has a connection pool and CONN_MAX_AGE={age!r}; Django refuses to connect with both.",
                hint="Set CONN_MAX_AGE to 0 where OPTIONS has a pool.",
                id="agentturns.E022",
            ),
        ),
        (
            not pooled and age == 0,
            Warning(
                f"{where} closes its connection after each request and task, and connecting costs more than a step.",
                hint="Set CONN_MAX_AGE to 60.",
                id="agentturns.W025",
            ),
        ),
        (
            not pooled and age != 0 and not database.get("CONN_HEALTH_CHECKS"),
            Warning(
                f"{where} keeps its connections but does not check them, so after a restart of the server the first "
                "query of each fails.",
                hint="Set CONN_HEALTH_CHECKS to True.",
                id="agentturns.W026",
            ),
        ),
    ]


def _strict_isolation(options: dict[str, Any]) -> str:
    """The isolation level asked for, when it is stricter than READ COMMITTED; else ""."""
    asked = options.get("isolation_level")
    if asked in STRICT_ISOLATION:
        return STRICT_ISOLATION[asked]
    for level in STRICT_ISOLATION.values():
        words = level.replace(" ", r"\\*[ _]")
        if re.search(rf"transaction_isolation\s*=\s*['\"]?{words}", str(options.get("options")), re.I):
            return level
    return ""


@with_valid_values
def check_server(app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """What only the PostgreSQL server knows: the isolation level that it gives to whoever asks for none."""
    if conf.DATABASE not in (databases or ()) or connections[conf.DATABASE].vendor != "postgresql":
        return []
    with connections[conf.DATABASE].cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        level = cursor.fetchone()[0].upper()
    return reported(
        [
            (
                level in STRICT_ISOLATION.values(),
                Error(
                    f"The server of DATABASES[{conf.DATABASE!r}] runs transactions as {level}, where claims and "
                    "decisions made at once fail instead of waiting for one another.",
                    hint="ALTER ROLE … SET default_transaction_isolation = 'read committed', and connect anew.",
                    id="agentturns.E021",
                ),
            )
        ]
    )
