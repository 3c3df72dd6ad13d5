"""A price that is entered late: the steps it covers get it, to the nano-dollar, and the turns that waited go on."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentturns import Agent, Conflict, InvalidBudget, Limits, Step, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.models import repricing
from agentturns.models.price import Price
from agentturns.models.repricing import apply_pending, reprice, repriced_on_leaving
from agentturns.models.sweep_mark import SweepMark
from agentturns.providers.base import ModelRequest, Usage
from agentturns.signals import turn_parked, turn_resumed
from agentturns.worker.sweep import sweep_if_due
from tests.metered import BACKEND, Metered
from tests.models.conftest import Bells

pytestmark = pytest.mark.django_db(transaction=True)

UNKNOWN = Usage()
SMALL = Usage(1_000, 400, 300, 100, cache_write_1h_tokens=200)
RATES = {"input": 2, "cached_input": "0.2", "cache_write": "2.5", "cache_write_1h": 4, "output": 10}
# What SMALL costs at RATES: 300 fresh, 400 read, 100 and 200 written, 100 out.
SMALL_COST = (300 * 2 + 400 * Decimal("0.2") + 100 * Decimal("2.5") + 200 * 4 + 100 * 10) / 1_000_000


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    return "noted"


@pytest.fixture(autouse=True)
def aliases(settings: Any) -> None:
    """Two vendors that no list has prices for, one of which serves under another name, and one that it has."""
    vendors = {"local": {}, "gateway": {"served": "llama-4-2026-05-01"}, "openai": {"pricing": "openai"}}
    providers = {alias: {"BACKEND": BACKEND, "OPTIONS": options} for alias, options in vendors.items()}
    settings.AGENTTURNS = {**settings.AGENTTURNS, "PROVIDERS": providers}


def run(*usages: Usage, model: str = "local:llama-4", **limits: Any) -> Turn:
    """One turn with these replies, run until it rests."""
    Metered.say(usages)
    name = f"agent {Turn.objects.count()}"
    agent = Agent(name=name, model=model, instructions="…", tools=[note], limits=Limits(**limits))
    return run_turn(agent.start("go").pk)


def a_price(model: str = "llama*", provider: str = "local", **columns: Any) -> Price:
    return Price.objects.create(provider=provider, model=model, **{**RATES, **columns})


def test_a_turn_that_waited_for_a_price_is_repriced_and_goes_on(bells: Bells) -> None:
    turn = run(SMALL, SMALL, max_cost=1)
    assert (turn.park_reason, turn.unpriced_steps, turn.cost) == ("unpriced", 1, 0)
    bells.clear()

    price = a_price()

    turn.refresh_from_db()
    assert (turn.status, turn.park_reason, turn.unpriced_steps, turn.cost) == ("queued", "", 0, SMALL_COST)
    step = turn.steps.get()
    assert (step.cost, step.price_source) == (SMALL_COST, f"price {price.pk}: local/llama*")
    assert bells.rung_for() == [turn.pk]
    assert price.applied is not None
    assert (price.applied.steps, price.applied.resumed, price.applied.left) == (1, 1, False)

    turn = run_turn(turn.pk)
    assert (turn.status, turn.cost, len(Metered.requests)) == ("completed", 2 * SMALL_COST, 2)


def test_a_resume_is_signalled_and_starts_a_fresh_stretch() -> None:
    turn = run(SMALL, SMALL, max_cost=1)
    heard: list[int] = []

    def hear(sender: Any, turn: Turn, **_: Any) -> None:
        heard.append(turn.pk)

    turn_resumed.connect(hear)
    try:
        a_price()
    finally:
        turn_resumed.disconnect(hear)
    turn.refresh_from_db()
    assert heard == [turn.pk]
    assert turn.stretch_seconds == 0


def test_a_price_that_shows_the_cap_passed_parks_the_turn_on_its_cost() -> None:
    turn = run(SMALL, SMALL, max_cost="0.001")
    a_price()
    turn = run_turn(turn.pk)
    assert (turn.status, turn.park_reason, turn.cost, len(Metered.requests)) == ("parked", "max_cost", SMALL_COST, 1)


def test_finished_turns_are_repriced_too_and_stay_finished() -> None:
    turn = run(SMALL, SMALL, SMALL)
    assert (turn.status, turn.unpriced_steps) == ("completed", 3)
    before = Turn.objects.all().spend()
    price = a_price()
    turn.refresh_from_db()
    assert (turn.status, turn.unpriced_steps, turn.cost) == ("completed", 0, 3 * SMALL_COST)
    assert Turn.objects.all().spend() == {**before, "cost": 3 * SMALL_COST, "unpriced_steps": 0}
    assert price.applied is not None and price.applied.resumed == 0


def test_a_turn_stays_parked_while_a_step_has_no_price() -> None:
    turn = run(SMALL, SMALL, max_cost=1, unpriced="allow", model="gateway:llama-4")
    Turn.objects.filter(pk=turn.pk).update(status="parked", park_reason="unpriced")
    Step.objects.filter(turn=turn, index=2).update(model="mistral", requested_model="mistral")
    a_price(provider="gateway")
    turn.refresh_from_db()
    assert (turn.status, turn.unpriced_steps, turn.cost) == ("parked", 1, SMALL_COST)
    a_price("mistral", provider="gateway")
    turn.refresh_from_db()
    assert (turn.status, turn.unpriced_steps) == ("queued", 0)


def test_a_turn_parked_for_another_reason_gets_its_prices_and_stays() -> None:
    turn = run(SMALL, SMALL, SMALL, max_cost=1, unpriced="allow", max_output_tokens=150)
    assert (turn.park_reason, turn.unpriced_steps) == ("max_output_tokens", 2)
    a_price()
    turn.refresh_from_db()
    assert (turn.park_reason, turn.unpriced_steps, turn.cost) == ("max_output_tokens", 0, 2 * SMALL_COST)


def test_steps_that_have_a_price_keep_it() -> None:
    turn = run(SMALL, model="openai:gpt-5-mini")
    cost, source = turn.cost, turn.steps.get().price_source
    first = a_price("gpt*", provider="openai")
    later = run(SMALL, model="openai:gpt-5-mini")
    first.input = Decimal(9)
    first.save()
    first.delete()
    turn.refresh_from_db()
    assert (turn.cost, turn.steps.get().price_source) == (cost, source)
    later.refresh_from_db()
    assert (later.cost, later.steps.get().cost) == (SMALL_COST, SMALL_COST)


@pytest.mark.parametrize(
    ("provider", "pattern"), [("local", "llama-4"), ("gateway", "llama-4"), ("gateway", "llama-4-2026-05-01")]
)
def test_a_price_is_found_by_the_name_that_served_or_the_one_asked_for(provider: str, pattern: str) -> None:
    turn = run(SMALL, model=f"{provider}:llama-4")
    a_price(pattern, provider=provider)
    turn.refresh_from_db()
    assert turn.cost == SMALL_COST


@pytest.mark.parametrize(("provider", "pattern"), [("other", "llama*"), ("local", "mistral*"), ("local", "lama-4")])
def test_steps_that_a_price_does_not_cover_stay_unpriced(provider: str, pattern: str) -> None:
    turn = run(SMALL)
    price = a_price(pattern, provider=provider)
    turn.refresh_from_db()
    assert (turn.unpriced_steps, turn.cost) == (1, 0)
    assert price.applied is not None and price.applied.steps == 0


def test_a_price_covers_the_calls_made_from_its_day_on() -> None:
    turn = run(SMALL, SMALL)
    Step.objects.filter(turn=turn, index=1).update(started_at=datetime(2026, 1, 31, 23, 59, tzinfo=UTC))
    Step.objects.filter(turn=turn, index=2).update(started_at=datetime(2026, 2, 1, tzinfo=UTC))
    a_price(effective_from=datetime(2026, 2, 1, tzinfo=UTC))
    assert list(turn.steps.order_by("index").values_list("cost", flat=True)) == [None, SMALL_COST]


def test_a_changed_price_covers_what_it_did_not_before() -> None:
    turn = run(SMALL)
    price = a_price("mistral*")
    price.model = "llama*"
    price.save()
    turn.refresh_from_db()
    assert turn.cost == SMALL_COST


def test_of_several_prices_the_one_that_counts_for_new_calls_counts_for_stored_ones() -> None:
    turn = run(SMALL)
    with transaction.atomic():
        special = a_price("llama-4", input=100)
        a_price("llama*")
    assert turn.steps.get().price_source == f"price {special.pk}: local/llama-4"


def test_a_reply_without_usage_is_presumed_at_the_new_price() -> None:
    turn = run(UNKNOWN)
    step = turn.steps.get()
    assert (turn.unpriced_steps, step.input_tokens, step.priced) == (1, None, False)
    price = a_price(input=1, output=2)
    step.refresh_from_db()
    # No limit was sent, so a reply of 4,096 tokens is assumed.
    presumed = ((step.estimated_input_tokens or 0) * 1 + 4_096 * 2) / Decimal(1_000_000)
    assert (step.cost, step.presumed_cost) == (None, presumed)
    assert step.price_source == f"estimate: the reply carried no usage; price {price.pk}: local/llama*"
    turn.refresh_from_db()
    assert (turn.cost, turn.presumed_cost, turn.unpriced_steps) == (0, presumed, 0)


def test_a_running_turn_keeps_its_counters_to_itself() -> None:
    seen: list[tuple[Any, ...]] = []

    def speak(request: ModelRequest) -> Usage:
        if len(Metered.requests) == 2:
            a_price()
            turn = Turn.objects.get()
            seen.append((turn.status, turn.unpriced_steps, turn.cost, turn.steps.get(index=1).cost))
            Turn.objects.get().cancel()
        return SMALL

    Metered.say(speak)
    agent = Agent(name="running", model="local:llama-4", instructions="…", tools=[note])
    turn = run_turn(agent.start("go").pk)
    assert seen == [("running", 1, 0, None)]
    assert (turn.status, turn.unpriced_steps, turn.cost) == ("canceled", 0, 2 * SMALL_COST)


@pytest.mark.parametrize("limits", [{}, {"max_cost": 1}], ids=["without a cap", "under a cap"])
def test_a_turn_never_rests_without_a_price_that_was_entered_while_it_ran(limits: dict[str, Any]) -> None:
    parked: list[str] = []

    def hear(sender: Any, turn: Turn, **_: Any) -> None:
        parked.append(turn.park_reason)

    def speak(request: ModelRequest) -> Usage:
        if len(Metered.requests) == 1:
            a_price()
        if len(Metered.requests) == 3:
            Turn.objects.get().cancel()
        return SMALL

    turn_parked.connect(hear)
    try:
        Metered.say(speak)
        agent = Agent(name="running", model="local:llama-4", instructions="…", tools=[note], limits=Limits(**limits))
        turn = run_turn(agent.start("go").pk)
    finally:
        turn_parked.disconnect(hear)
    assert parked == []
    assert (turn.status, turn.unpriced_steps, turn.cost) == ("canceled", 0, 3 * SMALL_COST)


def test_a_price_entered_at_the_moment_of_the_park_is_never_missed() -> None:
    for round_number in range(8):
        name = f"llama-{round_number}"
        Metered.say([SMALL, SMALL])
        agent = Agent(name=name, model=f"local:{name}", instructions="…", tools=[note], limits=Limits(max_cost=1))
        turn = agent.start("go")
        start = threading.Barrier(2)

        def enter(name: str = name, start: threading.Barrier = start, wait: float = round_number * 0.004) -> None:
            start.wait()
            time.sleep(wait)
            try:
                a_price(name)
            finally:
                connection.close()

        thread = threading.Thread(target=enter)
        thread.start()
        start.wait()
        run_turn(turn.pk)
        thread.join()
        turn = run_turn(turn.pk)
        assert (turn.status, turn.unpriced_steps, turn.cost) == ("completed", 0, 2 * SMALL_COST)


def test_what_leaves_its_worker_takes_along_the_prices_entered_meanwhile() -> None:
    turn = run(SMALL, SMALL)
    Price.objects.bulk_create([Price(provider="local", model="*", **RATES)])
    with transaction.atomic():
        held = Turn.objects.select_for_update().get(pk=turn.pk)
        newest = {"cost": Decimal("0.5"), "unpriced_steps": 2, "status": "parked"}
        columns = repriced_on_leaving(held, newest)
        assert columns == {
            "cost": Decimal("0.5") + 2 * SMALL_COST,
            "presumed_cost": Decimal(0),
            "unpriced_steps": 0,
        }
        assert repriced_on_leaving(held, {**newest, **columns}) == {}
        transaction.set_rollback(True)


def test_leaving_without_an_unpriced_step_costs_no_query() -> None:
    turn = run(SMALL, model="openai:gpt-5-mini")
    with CaptureQueriesContext(connection) as asked:
        assert repriced_on_leaving(turn, {}) == {}
    assert len(asked) == 0


def test_a_price_whose_transaction_is_undone_changes_nothing() -> None:
    turn = run(SMALL)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        a_price()
        raise ZeroDivisionError
    turn.refresh_from_db()
    assert turn.unpriced_steps == 1


def test_prices_made_in_bulk_wait_for_the_sweep() -> None:
    turn = run(SMALL, SMALL, max_cost=1)
    Price.objects.bulk_create([Price(provider="local", model="*", **RATES)])
    SweepMark.objects.all().delete()
    assert sweep_if_due()
    turn.refresh_from_db()
    assert turn.status == "queued"
    assert Price.objects.filter(applied_at=None).count() == 0
    assert apply_pending() == 0


def test_what_one_call_leaves_the_next_goes_on_with_and_those_who_wait_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repricing, "MOST_TURNS", 2)
    done = [run(SMALL) for _ in range(3)]
    waiting = run(SMALL, SMALL, max_cost=1)
    price = a_price()
    assert price.applied is not None
    assert (price.applied.steps, price.applied.resumed, price.applied.left) == (2, 1, True)
    waiting.refresh_from_db()
    assert waiting.status == "queued"
    assert apply_pending() == 2
    assert [Turn.objects.get(pk=turn.pk).unpriced_steps for turn in done] == [0, 0, 0]
    assert apply_pending() == 0


def test_a_turn_that_cannot_be_priced_does_not_keep_the_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repricing, "MOST_TURNS", 1)
    unsized, sized = run(UNKNOWN), run(SMALL)
    Step.objects.filter(turn=unsized).update(estimated_input_tokens=None)
    price = a_price()
    assert price.applied is not None and not price.applied.left
    assert Turn.objects.get(pk=sized.pk).cost == SMALL_COST
    assert Turn.objects.get(pk=unsized.pk).unpriced_steps == 1


def test_a_turn_that_fails_to_be_repriced_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = run(SMALL), run(SMALL)
    real = repricing.reprice

    def fail_once(turn: Turn, book: Any = None) -> tuple[int, bool]:
        if turn.pk == first.pk:
            raise Conflict("Somebody was faster.")
        return real(turn, book)

    monkeypatch.setattr(repricing, "reprice", fail_once)
    price = a_price()
    assert price.applied is not None and (price.applied.steps, price.applied.left) == (1, True)
    monkeypatch.undo()
    assert apply_pending() == 1
    assert Turn.objects.get(pk=second.pk).cost == Turn.objects.get(pk=first.pk).cost == SMALL_COST


def test_two_at_once_reprice_each_step_once_and_resume_once(bells: Bells) -> None:
    turn = run(SMALL, SMALL, max_cost=1)
    bells.clear()
    Price.objects.bulk_create([Price(provider="local", model="*", **RATES)])
    start = threading.Barrier(4)
    results: list[tuple[int, bool]] = []

    def work() -> None:
        start.wait()
        try:
            results.append(reprice(turn))
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(0, False), (0, False), (0, False), (1, True)]
    assert Turn.objects.get().cost == SMALL_COST
    assert bells.rung_for() == [turn.pk]


def test_repricing_a_deleted_turn_is_a_conflict() -> None:
    turn = run(SMALL)
    stale = Turn.objects.get(pk=turn.pk)
    turn.delete()
    with pytest.raises(Conflict, match="does not exist any more"):
        reprice(stale)


def test_a_price_is_cleaned_exact_and_never_negative() -> None:
    price = a_price(" llama* ", provider=" local ", input="0.000000001")
    price.refresh_from_db()
    assert (price.provider, price.model, price.input) == ("local", "llama*", Decimal("0.000000001"))
    with pytest.raises(IntegrityError), transaction.atomic():
        a_price("other", output="-0.01")
    with pytest.raises(ValueError, match="money is a Decimal, int or text"):
        Price(provider="local", model="x", input=0.1, output=1)


@pytest.mark.parametrize("since", [None, datetime(2026, 1, 1, tzinfo=UTC)])
def test_there_is_one_price_of_a_pattern_and_a_moment(since: datetime | None) -> None:
    a_price(effective_from=since)
    with pytest.raises(IntegrityError), transaction.atomic():
        a_price(effective_from=since)
    a_price(effective_from=datetime(2026, 1, 2, tzinfo=UTC))


def test_naming_columns_to_save_applies_the_price_as_well() -> None:
    price = a_price("mistral*")
    turn = run(SMALL)
    price.model = "llama*"
    price.save(update_fields=["model"])
    turn.refresh_from_db()
    assert turn.cost == SMALL_COST


def test_a_price_of_a_coming_day_is_not_used_yet() -> None:
    a_price("gpt*", provider="openai", effective_from=timezone.now() + timedelta(days=1))
    turn = run(SMALL, model="openai:gpt-5-mini")
    assert turn.steps.get().price_source.startswith("genai-prices")


def test_what_is_spent_is_not_said_to_be_nothing_where_it_is_unknown() -> None:
    turn = run(SMALL, SMALL, max_cost=1)
    with pytest.raises(InvalidBudget, match=r"spent an unknown amount \(1 unpriced step\), limit \$1\.00") as refused:
        turn.raise_budget(max_cost="0.5")
    assert "$0.00" not in str(refused.value)
    Turn.objects.filter(pk=turn.pk).update(park_reason="max_cost")
    turn.refresh_from_db()
    assert turn.waiting_for == "Spent an unknown amount (1 unpriced step) of max_cost $1.00; raise max_cost to go on."
