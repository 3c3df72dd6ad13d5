"""The django-q2 schedule of the sweep, made after ``migrate`` so that nobody has to remember it."""

from __future__ import annotations

import logging
from typing import Any, Final

from django.apps import AppConfig, apps
from django.db import connections, models, router
from django.db.models.signals import post_migrate

from agentturns.conf import conf
from agentturns.doorbell import NO_TIMEOUT

logger = logging.getLogger("agentturns")

NAME: Final = "agentturns: sweep"
FUNCTION: Final = "agentturns.worker.tasks.sweep"
EVERY_MINUTES: Final = 1


def connect() -> None:
    """Make, or bring up to date, the sweep's schedule after every ``migrate``. Called at start-up."""
    post_migrate.connect(_after_migrate, sender=apps.get_app_config("agentturns"), dispatch_uid=NAME)


def _after_migrate(app_config: AppConfig, using: str, **_: Any) -> None:
    if not apps.is_installed("django_q"):
        return
    schedules = apps.get_model("django_q", "Schedule")
    if router.db_for_write(schedules) != using:
        return
    if schedules._meta.db_table not in connections[using].introspection.table_names():
        return  # agentturns was migrated alone; django-q2's own migrate comes by here again
    ensure(schedules, using)


def ensure(schedules: type[models.Model], using: str) -> None:
    """Leave exactly one schedule of the sweep on the database ``using``, whoever else does the same right now."""
    rows = schedules._default_manager.using(using).filter(func=FUNCTION)
    wanted = _columns(schedules)
    if not rows.exists():
        rows.create(func=FUNCTION, **wanted)
        logger.info("schedule=%s made cluster=%s", FUNCTION, conf.QUEUE)
    # The name is not unique, so two migrates at once may both make one. Each looks again after its own is committed
    # and keeps the oldest: whichever looks last sees both.
    kept, *doubled = rows.order_by("pk").values("pk", *wanted)
    if doubled:
        rows.filter(pk__in=[row["pk"] for row in doubled]).delete()
    if any(kept[name] != value for name, value in wanted.items()):
        rows.filter(pk=kept["pk"]).update(**wanted)


def _columns(schedules: Any) -> dict[str, Any]:
    return {
        "name": NAME,
        "schedule_type": schedules.MINUTES,
        "minutes": EVERY_MINUTES,
        "repeats": -1,
        "cluster": conf.QUEUE,
        "args": None,
        # A pump has no time-out of django-q2's, see doorbell.py.
        "kwargs": repr({"q_options": {"timeout": NO_TIMEOUT}}),
        "hook": None,
    }
