"""The sweep's schedule: exactly one, whoever migrates how often."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.utils import timezone
from django_q.models import OrmQ, Schedule
from django_q.scheduler import scheduler
from pytest_django import Settings

from agentturns.worker import schedule
from tests.rivals import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def test_migrate_makes_the_schedule_of_the_sweep() -> None:
    Schedule.objects.all().delete()
    call_command("migrate", verbosity=0)
    made = Schedule.objects.get()
    assert (made.func, made.cluster) == ("agentturns.worker.tasks.sweep", "agentturns")
    assert (made.schedule_type, made.minutes, made.repeats) == ("I", 1, -1)


def test_another_migrate_makes_no_second_one() -> None:
    call_command("migrate", verbosity=0)
    kept = Schedule.objects.get()
    Schedule.objects.update(next_run=timezone.now())
    call_command("migrate", verbosity=0)
    assert Schedule.objects.get() == kept


def test_a_changed_queue_moves_the_schedule(settings: Settings) -> None:
    settings.AGENTTURNS = {"QUEUE": "turns"}
    call_command("migrate", verbosity=0)
    assert Schedule.objects.get().cluster == "turns"


def test_migrates_at_the_same_time_leave_one_schedule() -> None:
    for _ in range(5):
        Schedule.objects.all().delete()
        at_once(*[lambda: schedule.ensure(Schedule, "default")] * 6)
        assert Schedule.objects.count() == 1


def test_schedules_of_the_project_are_left_alone() -> None:
    theirs = Schedule.objects.create(name="agentturns: sweep", func="shop.tasks.tidy")
    call_command("migrate", verbosity=0)
    assert Schedule.objects.filter(pk=theirs.pk, func="shop.tasks.tidy").exists()


def test_the_schedule_queues_a_sweep_without_a_time_out_on_the_turns_queue() -> None:
    Schedule.objects.update(next_run=timezone.now())
    scheduler()
    [message] = OrmQ.objects.all()
    assert (message.key, message.task["func"]) == ("agentturns", "agentturns.worker.tasks.sweep")
    assert message.task["timeout"] == -1
