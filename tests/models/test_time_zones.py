"""The same turns in other time zones and with ``USE_TZ = False``: leases, waits, clocks and sentences stay right."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from agentturns import Agent, Conflict, Limits, Step, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.models.claims import claim
from agentturns.models.clock import database_now
from agentturns.money.budget import exceeded_reason
from agentturns.providers.base import Fault, ProviderError
from agentturns.providers.scripted import ScriptedModel, reply
from tests.lost_workers import Died, expire_lease, run_until_death
from tests.subprocesses import run_python

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(
    params=[(True, "America/New_York"), (False, "America/New_York"), (False, "Asia/Kolkata"), (False, "UTC")],
    ids=lambda zone: f"USE_TZ={zone[0]} {zone[1]}",
)
def zone(request: pytest.FixtureRequest, settings: Any) -> str:
    """A time zone, with and without ``USE_TZ``."""
    settings.USE_TZ, settings.TIME_ZONE = request.param
    return settings.TIME_ZONE


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    return text


@tool(approval="always")
def pay(order: str) -> str:
    """Pay."""
    return "paid"


def turn_of(*script: Any, **limits: Any) -> Turn:
    model = ScriptedModel(list(script))
    agent = Agent(name="tester", model=model, instructions="…", tools=[note, pay], limits=Limits(**limits))
    return agent.start("go")


def asks(name: str = "note", **options: Any) -> Any:
    return reply(tool_calls=[(name, {"text" if name == "note" else "order": "a"})], **options)


def test_a_turn_parks_is_raised_and_completes_with_an_honest_clock(zone: str) -> None:
    before = timezone.now()
    turn = run_turn(turn_of(asks(cost=2), reply("done"), max_cost=1, timeout=60).pk)
    assert turn.park_reason == "max_cost"
    assert before <= turn.parked_at <= timezone.now()
    assert before - timedelta(seconds=1) <= turn.started_at <= timezone.now()
    rival = Turn.objects.get(pk=turn.pk)
    turn.raise_budget(max_cost=5)
    with pytest.raises(Conflict) as lost:
        rival.raise_budget(max_cost=6)
    at = timezone.localtime(lost.value.at) if timezone.is_aware(lost.value.at) else lost.value.at
    assert f"trusted code acted on it at {at:%Y-%m-%d %H:%M:%S}." in str(lost.value)
    turn = run_turn(turn.pk)
    assert turn.status == "completed"
    assert 0 < turn.active_seconds < 30
    assert turn.finished_at - turn.started_at < timedelta(seconds=30)


def test_a_second_decision_is_told_the_local_time_of_the_first(zone: str) -> None:
    turn = run_turn(turn_of(asks("pay"), reply("done")).pk)
    call = turn.tool_calls.get().approve()
    with pytest.raises(Conflict) as lost:
        call.decline()
    at = timezone.localtime(call.decided_at) if timezone.is_aware(call.decided_at) else call.decided_at
    assert str(lost.value) == f"The call of pay was already approved at {at:%Y-%m-%d %H:%M:%S}; nothing was changed."


def test_a_back_off_is_waited_for_and_no_longer(zone: str) -> None:
    turn = run_turn(turn_of(ProviderError("Busy.", fault=Fault.TRANSIENT, retry_after=90), reply("done")).pk)
    assert timedelta(seconds=80) < turn.run_after - timezone.now() < timedelta(seconds=120)
    assert turn.waiting_for.startswith(("Tries again in 8", "Tries again in 9", "Tries again in 1"))
    assert list(Turn.objects.runnable()) == []
    assert run_turn(turn.pk).status == "queued"

    Turn.objects.filter(pk=turn.pk).update(run_after=timezone.now() - timedelta(seconds=1))
    assert list(Turn.objects.runnable()) == [turn]
    assert run_turn(turn.pk).status == "completed"


def test_a_lease_is_neither_expired_early_nor_kept_for_ever(zone: str) -> None:
    turn = turn_of(reply("done"))
    assert claim(turn.pk, "first") is not None
    turn.refresh_from_db()
    assert timedelta(seconds=50) < turn.lease_expires_at - timezone.now() < timedelta(seconds=70)
    assert list(Turn.objects.runnable()) == []
    assert claim(turn.pk, "second") is None
    Turn.objects.filter(pk=turn.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert list(Turn.objects.runnable()) == [turn]
    assert claim(turn.pk, "second") is not None


def test_a_takeover_counts_the_time_up_to_the_last_renewal(zone: str) -> None:
    def speak(request: Any) -> Any:
        raise Died

    agent = Agent(name="tester", model=ScriptedModel(speak), instructions="…", limits=Limits(timeout=120))
    turn = run_until_death(agent.start("go"))
    Turn.objects.filter(pk=turn.pk).update(active_since=database_now() - timedelta(hours=2))
    since = Turn.objects.get(pk=turn.pk).active_since
    Turn.objects.filter(pk=turn.pk).update(lease_renewed_at=since + timedelta(seconds=50))
    held = claim(turn.pk, "next")
    assert held is not None
    assert held.turn.stretch_seconds == pytest.approx(50, abs=0.01)
    assert exceeded_reason(held.turn) is None


def test_the_day_of_a_step_is_local(zone: str) -> None:
    turn = run_turn(turn_of(reply("done", cost="0.1")).pk)
    moment = datetime(2026, 3, 1, 2, tzinfo=UTC)
    local = moment.astimezone(timezone.get_default_timezone())
    aware = timezone.is_aware(turn.created_at)
    Step.objects.filter(turn=turn).update(started_at=moment if aware else local.replace(tzinfo=None))
    (row,) = Turn.objects.all().spend_by("day")
    expected = date(2026, 2, 28) if zone == "America/New_York" else date(2026, 3, 1)
    assert (row["day"], row["cost"]) == (expected, Decimal("0.1"))


@pytest.mark.sqlite
def test_without_time_zones_the_engines_moments_are_stored_as_utc_and_read_as_local(settings: Any) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "America/New_York"
    turn = turn_of(reply("done"))
    # In this night the clock of New York showed 01:30 twice.
    for fold, stored in ((0, "2026-11-01 05:30:00"), (1, "2026-11-01 06:30:00")):
        moment = datetime(2026, 11, 1, 1, 30, fold=fold)
        Turn.objects.filter(pk=turn.pk).update(run_after=moment)
        with connection.cursor() as cursor:
            cursor.execute("SELECT CAST(run_after AS TEXT) FROM agentturns_turn")
            assert cursor.fetchone()[0] == stored
        found = Turn.objects.get(pk=turn.pk).run_after
        assert (found, found.fold) == (moment, fold)


@pytest.mark.sqlite
def test_the_engines_moments_mean_the_same_when_time_zones_are_switched_on_later(settings: Any) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "America/New_York"
    turn = expire_lease(run_held())
    before = turn.lease_expires_at
    settings.USE_TZ = True
    after = Turn.objects.get(pk=turn.pk).lease_expires_at
    assert timezone.make_naive(after, timezone.get_default_timezone()) == before
    assert list(Turn.objects.runnable()) == [turn]


def run_held() -> Turn:
    turn = turn_of(reply("done"))
    assert claim(turn.pk, "first") is not None
    return turn


SCRIPT = """
    import sys, time
    from datetime import datetime, timedelta

    from agentturns import Agent, Limits, Turn, tool
    from agentturns.engine.runner import run_turn
    from agentturns.models.claims import claim
    from agentturns.providers.scripted import ScriptedModel, reply

    @tool(effect="transactional")
    def note(text: str) -> str:
        "Note a text."
        return text

    asks = reply(tool_calls=[("note", {"text": "a"})], cost="0.3")
    agent = Agent(
        name="tester",
        model=ScriptedModel([asks, reply("done", cost="0.1")]),
        instructions="…",
        tools=[note],
        limits=Limits(max_cost="0.2", timeout=60),
    )
    turn = run_turn(agent.start("go").pk)
    assert turn.park_reason == "max_cost", turn.park_reason
    assert turn.parked_at.tzinfo is None
    assert abs(turn.parked_at - datetime.now()) < timedelta(seconds=30), turn.parked_at
    assert abs(turn.started_at - datetime.now()) < timedelta(seconds=30), turn.started_at
    turn = run_turn(turn.raise_budget(max_cost=1).pk)
    assert turn.status == "completed", turn.status
    assert turn.active_seconds < 30, turn.active_seconds
    (row,) = Turn.objects.all().spend_by("day")
    assert row["day"] == turn.started_at.date(), row

    held = agent.start("more")
    assert claim(held.pk, "a worker")
    assert claim(held.pk, "another") is None
    held.refresh_from_db()
    assert timedelta(seconds=30) < held.lease_expires_at - datetime.now() < timedelta(seconds=90)
    held.cancel()
    print(turn.status, turn.answer, turn.cost)
"""


def test_a_process_that_never_knew_time_zones_runs_a_turn_from_end_to_end(tmp_path: Path) -> None:
    printed = run_python(SCRIPT, tmp_path, settings="USE_TZ = False\nTIME_ZONE = 'America/New_York'\n")
    assert printed.splitlines()[-1] == "completed done 0.40"
