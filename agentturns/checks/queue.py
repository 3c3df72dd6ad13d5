"""django-q2: the settings with which a message is lost, doubled, or delivered for ever, and the schedule.

``Q_CLUSTER`` is read from the settings: django-q2 copies it at import, and importing it here would be too early.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Warning
from django.db import connections

from agentturns.checks.table import Row, number, reported
from agentturns.checks.values import with_valid_values
from agentturns.conf import conf


@with_valid_values
def check_queue(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """``Q_CLUSTER``, as the cluster that runs the turns reads it."""
    if not apps.is_installed("django_q"):
        return [
            Error(
                "django_q is not in INSTALLED_APPS, so nothing runs the turns.",
                hint="Add 'django_q' to INSTALLED_APPS and run manage.py migrate.",
                id="agentturns.E010",
            )
        ]
    given = getattr(settings, "Q_CLUSTER", None)
    if not isinstance(given, dict) or not given:
        return [
            Error(
                "Q_CLUSTER is not set, so django-q2 looks for Redis on this machine and uses unsafe defaults.",
                hint="Set Q_CLUSTER; README.md shows one that is safe.",
                id="agentturns.E011",
            )
        ]
    cluster = _of_turns(given)
    return reported([*_deadlines(cluster), *_delivery(cluster), *_broker(cluster), *_costs(cluster)])


def _of_turns(given: dict[str, Any]) -> dict[str, Any]:
    """The settings of the cluster that runs the turns: those of its name in ALT_CLUSTERS over the others."""
    if conf.QUEUE in (given.get("name", "default"), given.get("cluster_name")):
        return given
    others = given.get("ALT_CLUSTERS")
    own = others.get(conf.QUEUE) if isinstance(others, dict) else None
    return {**given, **own} if isinstance(own, dict) else given


def _deadlines(cluster: dict[str, Any]) -> list[Row]:
    timeout = cluster.get("timeout")
    retry = number(cluster.get("retry", 60))
    limit = number(timeout)
    longest = _longest_pump()
    bounded = limit is not None and limit != -1
    return [
        (
            timeout is not None and (not isinstance(timeout, int) or isinstance(timeout, bool)),
            Error(
                f"Q_CLUSTER['timeout'] is {timeout!r}; django-q2 fails every task unless it is a whole number.",
                hint="Write whole seconds, such as 3600.",
                id="agentturns.E012",
            ),
        ),
        (
            bounded and limit is not None and retry is not None and limit >= retry,
            Error(
                f"Q_CLUSTER['timeout'] is {timeout!r} and retry is {retry!r} seconds, so a message is delivered again "
                "while its first delivery is still allowed to run.",
                hint="Set retry above timeout, such as 3900 and 3600.",
                id="agentturns.E013",
            ),
        ),
        (
            retry is not None and retry < longest,
            Warning(
                f"Q_CLUSTER['retry'] is {retry!r} seconds, but a worker may rightly be at work for {longest:g}: each "
                "message would be delivered again meanwhile.",
                hint="Set it above SLICE_SECONDS plus the longest model or tool call, such as 3900.",
                id="agentturns.W011",
            ),
        ),
    ]


def _longest_pump() -> float:
    """How long a worker may rightly be at work on one message, in seconds: a slice, and the call begun at its end."""
    return conf.SLICE_SECONDS + max(conf.MODEL_TIMEOUT, conf.TOOL_TIMEOUT)


def _delivery(cluster: dict[str, Any]) -> list[Row]:
    workers = int(number(cluster.get("workers")) or os.cpu_count() or 4)
    waiting = number(cluster.get("queue_limit", workers**2))
    bulk = number(cluster.get("bulk", 1))
    return [
        (
            waiting is not None and waiting > workers,
            Warning(
                f"Q_CLUSTER lets {waiting} messages wait in memory for {workers} workers; retry counts that wait, and "
                "another cluster could have taken them.",
                hint="Set queue_limit to 1.",
                id="agentturns.W012",
            ),
        ),
        (
            bulk is not None and bulk > 1,
            Warning(
                f"Q_CLUSTER['bulk'] is {bulk!r}; messages taken in bulk wait in memory, and retry counts that wait.",
                hint="Set bulk to 1.",
                id="agentturns.W012",
            ),
        ),
        (
            not number(cluster.get("max_attempts", 0)),
            Warning(
                "Q_CLUSTER has no max_attempts, so a message that fails is delivered again for ever.",
                hint="Set max_attempts, such as 3.",
                id="agentturns.W013",
            ),
        ),
        (
            cluster.get("ack_failures") is not True,
            Warning(
                "Q_CLUSTER['ack_failures'] is not True, so a message that failed stays in the queue.",
                hint="Set ack_failures to True, in the settings of the web processes too: it is stamped on sending.",
                id="agentturns.W014",
            ),
        ),
    ]


def _broker(cluster: dict[str, Any]) -> list[Row]:
    alias = cluster.get("orm")
    known = isinstance(alias, str) and alias in connections.settings
    return [
        (
            bool(cluster.get("sync")),
            Warning(
                "Q_CLUSTER['sync'] is on, so no message wakes a worker and turns stay queued.",
                hint="Take sync out; in tests, agentturns.testing.drain() runs the turns.",
                id="agentturns.W015",
            ),
        ),
        (
            bool(alias) and not known,
            Error(
                f"Q_CLUSTER['orm'] is {alias!r}, which is no key of DATABASES.",
                hint=f"Name one of {', '.join(sorted(connections.settings))}.",
                id="agentturns.E014",
            ),
        ),
        (
            bool(alias) and known and alias != conf.DATABASE,
            Info(
                f"Q_CLUSTER['orm'] is {alias!r} and the turns are in {conf.DATABASE!r}, so workers are woken after "
                "the commit instead of inside it; a wake-up lost in between is made good by the sweep, up to "
                f"{conf.SWEEP_SECONDS} seconds later.",
                hint="Give both the same database, or silence this message.",
                id="agentturns.I010",
            ),
        ),
    ]


def _costs(cluster: dict[str, Any]) -> list[Row]:
    kept = number(cluster.get("save_limit", 250))
    return [
        (
            kept is not None and kept > 0,
            Warning(
                f"django-q2 keeps the last {kept} successes, and loads all of them for each result it saves.",
                hint="Set Q_CLUSTER['save_limit'] to -1: what turns did is in their own rows.",
                id="agentturns.W016",
            ),
        ),
        (
            cluster.get("catch_up", True) is not False,
            Warning(
                "Q_CLUSTER['catch_up'] is not False, so after a pause a schedule runs once for each time it missed.",
                hint="Set catch_up to False.",
                id="agentturns.W017",
            ),
        ),
    ]


@with_valid_values
def check_sweep(app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """The schedule that looks for expired leases and lost wake-ups while no worker is busy."""
    if not apps.is_installed("django_q"):
        return []
    schedules = apps.get_model("django_q", "Schedule")._default_manager
    turns = apps.get_model("agentturns", "Turn")
    if schedules.db not in (databases or ()):
        return []
    # Before the first migrate there is nothing to sweep, and migrate makes the schedule.
    if turns._meta.db_table not in connections[conf.DATABASE].introspection.table_names():
        return []
    if schedules.filter(func__startswith="agentturns.worker.").exists():
        return []
    return [
        Warning(
            "There is no schedule for the sweep, so while no worker is busy nothing takes over the turns of a worker "
            "that died, and nothing lets approvals expire.",
            hint="Run manage.py migrate, which makes it.",
            id="agentturns.W018",
        )
    ]
