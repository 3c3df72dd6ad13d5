"""What a test needs beside Python: a mark names it, and the test is skipped where it is missing.

With ``AGENTTURNS_CI_REQUIRE_SERVICES=1`` such a skip is a failure, so that no test is left out unseen.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from functools import cache

import pytest
import redis
from django.db import connection

from agentturns.definitions import agent
from agentturns.pytest_plugin import run_turns as run_turns  # the tests' own run has agentturns uninstalled
from tests.counters import wrong_counters

# Under nohup this process ignores SIGHUP, and so would the programs whose reaction to it is tested.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _missing_sqlite() -> str:
    return "" if connection.vendor == "sqlite" else "about SQLite, but DATABASE_URL names another database"


def _missing_postgres() -> str:
    return "" if connection.vendor == "postgresql" else "about PostgreSQL, but DATABASE_URL names another database"


@cache
def _missing_redis() -> str:
    url = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
    try:
        redis.Redis.from_url(url, socket_connect_timeout=1).ping()
    except redis.RedisError as error:
        return f"needs Redis at {url}: {error}"
    return ""


def _missing_browser() -> str:
    absent = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"needs {' and '.join(absent)}" if absent else ""


MISSING: dict[str, Callable[[], str]] = {
    "sqlite": _missing_sqlite,
    "postgres": _missing_postgres,
    "redis": _missing_redis,
    "browser": _missing_browser,
}
# A run on PostgreSQL rightly leaves out what is about SQLite.
REQUIRED = {"postgres", "redis", "browser"} if os.environ.get("AGENTTURNS_CI_REQUIRE_SERVICES") == "1" else set()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark, missing in MISSING.items():
        if item.get_closest_marker(mark) and (reason := missing()):
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    required = sorted(mark for mark in REQUIRED if item.get_closest_marker(mark))
    if required and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"Skipped, but this run requires {' and '.join(required)}: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def counters_equal_their_rows(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test that has a database: each turn's counters are the sums over its rows."""
    database = {"db", "transactional_db"} & set(request.fixturenames)
    if not database and not request.node.get_closest_marker("django_db"):
        yield
        return
    request.getfixturevalue("_django_db_helper")
    yield
    assert wrong_counters() == []


@pytest.fixture(autouse=True)
def agents_of_one_test() -> Iterator[None]:
    """Agents that a test declares are gone after it."""
    before = dict(agent._registry)
    yield
    agent._registry.clear()
    agent._registry.update(before)
