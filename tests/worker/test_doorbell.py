"""The doorbell: when its message becomes visible, what it costs, and what it never breaks."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.signals import pre_enqueue
from django_q.signing import SignedPackage
from pytest_django import Settings

from agentturns import doorbell
from tests.rivals import at_once
from tests.worker.pumps import answering, bells, silence

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def on_redis(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[Any]:
    """django-q2 on its Redis broker; gives the broker of the turns' queue, empty."""
    monkeypatch.setattr(Conf, "ORM", None)
    monkeypatch.setattr(Conf, "REDIS", os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
    settings.AGENTTURNS = {"QUEUE": f"agentturns-test-{os.getpid()}"}
    doorbell._redis_broker.cache_clear()
    broker = get_broker(settings.AGENTTURNS["QUEUE"])
    broker.delete_queue()
    yield broker
    broker.delete_queue()
    doorbell._redis_broker.cache_clear()


def test_a_turn_that_is_started_rings_on_the_turns_own_queue() -> None:
    turn = answering().start("go")
    assert bells() == [turn.pk]
    [message] = OrmQ.objects.all()
    assert (message.key, message.task["func"]) == ("agentturns", "agentturns.worker.tasks.run_turns")


def test_no_time_out_of_the_queue_ends_a_pump(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conf, "TIMEOUT", 30)
    answering().start("go")
    [message] = OrmQ.objects.all()
    assert message.task["timeout"] == -1


def test_a_bell_is_heard_when_the_transaction_commits_and_not_before() -> None:
    with transaction.atomic():
        doorbell.ring(7)
        assert at_once(bells) == [[]]
    assert bells() == [7]


def test_a_bell_is_gone_with_the_transaction_that_rang_it() -> None:
    with transaction.atomic():
        doorbell.ring(7)
        transaction.set_rollback(True)
    assert bells() == []


def test_a_bell_costs_one_statement() -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as asked:
        doorbell.ring(7)
    assert [query["sql"].split()[0] for query in asked] == ["INSERT"]


def test_a_broken_transaction_is_its_owners_error() -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        transaction.set_rollback(True)
        doorbell.ring(7)


def test_a_receiver_that_fails_while_a_bell_is_rung_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(**_: Any) -> None:
        raise RuntimeError("no")

    pre_enqueue.connect(refuse)
    try:
        turn = answering().start("go")
    finally:
        pre_enqueue.disconnect(refuse)
    assert turn.status == "queued"
    assert f"turn={turn.pk} doorbell not rung error=RuntimeError" in caplog.text


@pytest.mark.redis
def test_with_redis_a_bell_is_rung_after_the_commit(on_redis: Any) -> None:
    with transaction.atomic():
        doorbell.ring(7)
        assert on_redis.queue_size() == 0
    [(_, message)] = on_redis.dequeue()
    assert SignedPackage.loads(message)["args"] == (7,)


@pytest.mark.redis
def test_with_redis_a_bell_is_not_rung_when_the_transaction_is_rolled_back(on_redis: Any) -> None:
    with transaction.atomic():
        doorbell.ring(7)
        transaction.set_rollback(True)
    assert on_redis.queue_size() == 0


@pytest.mark.redis
def test_with_redis_many_bells_share_a_connection(on_redis: Any) -> None:
    doorbell.ring(1)
    before = on_redis.connection.info("stats")["total_connections_received"]
    for turn_id in range(20):
        doorbell.ring(turn_id)
    assert on_redis.connection.info("stats")["total_connections_received"] == before
    assert on_redis.queue_size() == 21


def test_a_dead_broker_is_logged_and_the_turn_is_queued_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Conf, "ORM", None)
    monkeypatch.setattr(Conf, "REDIS", "redis://127.0.0.1:1")
    doorbell._redis_broker.cache_clear()
    turn = answering().start("go")
    doorbell._redis_broker.cache_clear()
    assert turn.status == "queued"
    assert f"turn={turn.pk} doorbell not rung error=ConnectionError" in caplog.text


def test_under_sync_the_bell_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conf, "SYNC", True)
    turn = answering().start("go")
    assert (turn.status, bells()) == ("queued", [])


def test_without_a_queue_the_bell_says_so_once(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    settings.Q_CLUSTER = {}
    doorbell._say_once.cache_clear()
    caplog.set_level(logging.WARNING)
    agent = answering()
    agent.start("one")
    agent.start("two")
    silence()
    assert caplog.text.count("doorbell is silent") == 1
    assert bells() == []
