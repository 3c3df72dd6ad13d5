"""The doorbell: a queue message that says "turn N may be runnable". It carries no truth; the rows do.

A message that is lost costs time until the next sweep, one that comes twice costs a look at the rows.
"""

from __future__ import annotations

import logging
from functools import cache, partial
from typing import Final

from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, transaction

from agentturns.conf import conf

logger = logging.getLogger("agentturns")

TASK: Final = "agentturns.worker.tasks.run_turns"


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
    if _inside_transaction(Conf):
        _send(turn_id)
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
    logger.warning("doorbell silent: %s, so no worker is told of runnable turns", why)


def _inside_transaction(conf_q: type) -> bool:
    """Whether the broker's messages can be part of a transaction on our database."""
    from django_q.brokers.orm import ORM

    return conf_q.ORM == conf.DATABASE and type(_broker()) is ORM  # type: ignore[attr-defined]


def _broker():
    from django_q.brokers import get_broker

    return get_broker(conf.QUEUE)
