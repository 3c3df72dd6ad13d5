"""The doorbell: a queue message that says "turn N may be runnable". It carries no truth; the rows do.

A message that is lost costs time until the next sweep, one that comes twice costs a look at the rows.
"""

from __future__ import annotations

import logging
import os
from functools import cache, partial
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, transaction

from agentturns.conf import conf

logger = logging.getLogger("agentturns")

TASK: Final = "agentturns.worker.tasks.run_turns"
# django-q2's own time-out kills the process in the middle of other turns' calls; every call has its own deadline.
NO_TIMEOUT: Final = -1


def ring(turn_id: int) -> None:
    """Tell the workers that this turn may be runnable.

    With django-q2's ORM broker on ``AGENTTURNS["DATABASE"]`` the message is part of the caller's transaction there;
    with any other broker it is sent once that transaction is committed. A broker that cannot be reached is logged
    and never raised; an error of the caller's own transaction is the caller's. Does nothing under ``sync``.
    """
    if not _has_queue():
        return
    from django_q.conf import Conf

    if Conf.SYNC:
        return
    if Conf.ORM == conf.DATABASE and not _outranks_orm(Conf):
        _send(turn_id, raises=DatabaseError)
    else:
        transaction.on_commit(partial(_send, turn_id), using=conf.DATABASE, robust=True)


def _has_queue() -> bool:
    if not apps.is_installed("django_q"):
        _say_once("django_q is not in INSTALLED_APPS")
    elif not getattr(settings, "Q_CLUSTER", None):
        _say_once("Q_CLUSTER is not set")
    else:
        return True
    return False


@cache
def _say_once(why: str) -> None:
    logger.warning("doorbell is silent, so no worker hears of runnable turns: %s", why)


def _outranks_orm(conf_q: Any) -> bool:
    """Whether ``Q_CLUSTER`` names a broker that django-q2 prefers to the ORM's."""
    return bool(conf_q.BROKER_CLASS or conf_q.IRON_MQ or isinstance(conf_q.SQS, dict))


def _send(turn_id: int, raises: type[Exception] | tuple[()] = ()) -> None:
    from django_q.tasks import async_task

    try:
        async_task(TASK, turn_id, q_options={"broker": _broker(conf.QUEUE), "timeout": NO_TIMEOUT})
    except raises:
        raise
    except Exception as error:
        logger.warning("turn=%s doorbell not rung error=%s", turn_id, type(error).__name__)


def _broker(queue: str) -> Any:
    """The queue's broker; one on Redis is kept, since making it opens a connection."""
    from django_q.brokers import get_broker
    from django_q.conf import Conf

    if Conf.ORM or Conf.MONGO or _outranks_orm(Conf):
        return get_broker(queue)
    return _redis_broker(queue, os.getpid())


@cache
def _redis_broker(queue: str, process: int) -> Any:
    from django_q.brokers import get_broker

    return get_broker(queue)
