"""A turn's page: where it stands, what was asked and done, and what it cost."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from agentturns import Agent, Limits, Notice, Turn
from tests.admin import rows
from tests.admin.operators import browser_of, staff, words

pytestmark = pytest.mark.django_db


def page(browser: Client, turn: Turn, **query: Any) -> Any:
    return browser.get(reverse("admin:agentturns_turn_change", args=[turn.pk]), query)


def test_the_page_says_first_what_the_turn_waits_for_and_what_to_press(browser: Client) -> None:
    turn = rows.over_cost()
    read = words(page(browser, turn))
    sentence, button = read.index(turn.waiting_for), read.index("Raise budget and resume")
    assert sentence < button < read.index("Request")


def test_the_budget_panel_says_where_each_limit_comes_from(browser: Client) -> None:
    Agent("support", model="openai:gpt-5-mini", instructions="Help.", limits=Limits(max_input_tokens=50_000))
    turn = rows.over_cost(limits={"max_cost": "0.25"})
    read = words(page(browser, turn))
    assert "Cost max_cost $0.30 $0.25 given when the turn was started" in read
    assert "Input tokens max_input_tokens 3,000 50,000 tokens agent support" in read
    assert "Steps max_steps 3 50 steps AGENTTURNS['DEFAULT_LIMITS'] fails the turn when reached" in read
    assert "Output tokens max_output_tokens 600 tokens no limit" in read


def test_a_raised_limit_names_who_raised_it_and_why(browser: Client, operator: User) -> None:
    turn = rows.over_cost().raise_budget(by=operator, reason="a big customer", max_cost="0.80")
    read = words(page(browser, turn))
    assert "$0.80 set on this turn by olga" in read
    assert "max_cost: $0.25 → $0.80 olga a big customer" in read


def test_the_steps_show_cost_tokens_calls_and_what_the_model_was_told(browser: Client) -> None:
    call = rows.a_call("issue_refund", arguments={"pence": 1850}, output_text="refunded", decided_by_name="ann")
    turn = rows.a_turn(rows.a_step(call, output=[{"type": "text", "text": "Refunding."}]), status="running")
    Notice.objects.create(turn=turn, after_step=1, kind="tool_budget", text="Two calls are left.")
    read = words(page(browser, turn))
    assert "Step 1 completed $0.10 gpt-5-mini · 1,000 tokens in, 200 out · 2.0 s Refunding." in read
    assert '{ "pence": 1850 }' in read
    assert "Result, as the model sees it refunded" in read
    assert "Told to the model: Two calls are left." in read


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        ({"cost": None, "price_source": ""}, "unpriced"),
        ({"cost": Decimal("0.20")}, "$0.20"),
        ({"cost": Decimal(0)}, "$0.00"),
        ({"cost": Decimal("0.20"), "presumed_cost": Decimal("0.01")}, "$0.20 + $0.01 presumed"),
        ({"cost": None, "presumed_cost": Decimal("0.01")}, "$0.01 presumed"),
        ({"cost": None, "price_source": "", "status": "started", "completed_at": None}, "–"),
    ],
)
def test_a_step_shows_its_cost_or_that_it_is_not_known(browser: Client, columns: dict[str, Any], shown: str) -> None:
    step, calls = rows.a_step(**columns)
    turn = rows.a_turn((step, calls), status="running")
    Turn.objects.filter(pk=turn.pk).update(unpriced_steps=int(shown == "unpriced"))
    assert f"Step 1 {step['status']} {shown} gpt-5-mini" in words(page(browser, turn))


def test_the_page_takes_the_same_few_queries_whatever_its_length(operator: User) -> None:
    def queries(turn: Turn) -> int:
        client = browser_of(operator)
        with CaptureQueriesContext(connection) as captured:
            assert page(client, turn).status_code == 200
        return len(captured)

    short = rows.asking()
    long = rows.asking(*[rows.a_question()] * 6)
    for index in range(2, 70):
        step = long.steps.create(index=index, **rows.a_step()[0])
        step.tool_calls.create(turn=long, position=0, created_at=timezone.now(), **rows.a_call())
        Notice.objects.create(turn=long, after_step=index, kind="tool_budget", threshold=str(index), text="Few left.")
    Turn.objects.filter(pk=long.pk).update(
        step_count=69, tool_call_count=74, input_tokens=69_000, output_tokens=69 * 200, cost=Decimal("6.90")
    )
    assert queries(short) == queries(long) <= 15


def test_a_long_turn_opens_on_its_last_steps_and_every_step_can_be_reached(browser: Client) -> None:
    turn = rows.a_turn(*[rows.a_step()] * 120, status="running", limits={})
    last, first = words(page(browser, turn)), words(page(browser, turn, steps=1))
    assert "101 to 120 of 120" in last
    assert "Step 120" in last
    assert "1 to 50 of 120" in first
    assert "Step 1 completed" in first
    assert "of 120" in words(page(browser, turn, steps="made up"))


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"status": "queued"}, "Waits for a worker."),
        ({"status": "running"}, "A worker runs it."),
        ({"status": "running", "cancel_requested_at": timezone.now()}, "does so after its current call"),
        ({"status": "completed", "answer": "It arrives on Monday."}, "Answer It arrives on Monday."),
        ({"status": "canceled", "error_message": "Canceled by ann: twice."}, "Canceled by ann: twice."),
        ({"status": "parked", "park_reason": "provider_error", "error_message": "401."}, "Retry once that is mended."),
    ],
)
def test_every_state_has_its_sentence(browser: Client, columns: dict[str, Any], sentence: str) -> None:
    assert sentence in words(page(browser, rows.a_turn(**columns)))


@pytest.mark.parametrize(
    ("make", "buttons"),
    [
        (rows.over_cost, {"raise", "lower", "cancel"}),
        (rows.out_of_steps, {"raise"}),
        (lambda: rows.a_turn(status="parked", park_reason="crash_loop"), {"retry", "lower", "cancel"}),
        (lambda: rows.a_turn(status="failed", error_code="error"), {"retry"}),
        (lambda: rows.a_turn(status="running"), {"lower", "cancel"}),
        (lambda: rows.a_turn(status="running", cancel_requested_at=timezone.now()), {"lower"}),
        (lambda: rows.a_turn(status="completed"), set()),
        (rows.asking, {"decide", "lower", "cancel"}),
    ],
)
def test_only_the_buttons_that_fit_are_offered(browser: Client, make: Any, buttons: set[str]) -> None:
    html = page(browser, make()).content.decode()
    assert {name for name in ("raise", "lower", "cancel", "retry", "decide") if f'/{name}/"' in html} == buttons


def test_each_permission_brings_its_button_and_no_other(db: None) -> None:
    parked, asking = rows.over_cost(), rows.asking()
    for name, verb, turn in (
        ("raise", "raise_budget", parked),
        ("cancel", "cancel_turn", parked),
        ("decide", "decide_toolcall", asking),
    ):
        for user, offered in (
            (staff(f"may-{name}", "view_turn", verb), True),
            (staff(f"may-not-{name}", "view_turn"), False),
        ):
            assert (f'/{name}/"' in page(browser_of(user), turn).content.decode()) is offered


def test_a_page_links_only_to_pages_that_may_be_seen(browser: Client, db: None) -> None:
    turn = rows.over_cost()
    links = ("/agentturns/step/", "/agentturns/toolcall/", "/agentturns/session/")
    everything, little = page(browser, turn), page(browser_of(staff("ted", "view_turn")), turn)
    assert all(link in everything.content.decode() for link in links)
    assert not any(link in little.content.decode() for link in links)


def test_arguments_too_long_to_be_read_here_are_decided_on_the_calls_own_page(browser: Client) -> None:
    turn = rows.asking(rows.a_question(arguments={"text": "x" * 30_000}))
    html = page(browser, turn).content.decode()
    assert "Read the arguments to their end before you decide" in html
    assert '/decide/"' not in html
    call = turn.tool_calls.get()
    own = browser.get(reverse("admin:agentturns_toolcall_change", args=[call.pk])).content.decode()
    assert "x" * 30_000 in own
    assert '/decide/"' in own


def test_what_middleware_made_of_the_request_is_shown_beside_it(browser: Client) -> None:
    turn = rows.a_turn(input="call me on 555", message="call me on [number]", flags={"pii": True})
    read = words(page(browser, turn))
    assert "call me on 555 What the model reads instead call me on [number]" in read
    assert '{ "pii": true }' in read


def test_a_turn_that_does_not_exist_leads_back_with_a_message(browser: Client) -> None:
    for name in ("change", "raise", "lower"):
        response = browser.get(f"/admin/agentturns/turn/987654321/{name}/", follow=True)
        assert "doesn’t exist" in words(response)


def test_a_session_page_shows_its_turns_in_order(browser: Client) -> None:
    first = rows.a_turn(rows.a_step(), status="completed", input="And the mug?", answer="On its way.")
    Turn.objects.create(session=first.session, index=2, agent="support", model="openai:gpt-5-mini", input="And now?")
    read = words(browser.get(reverse("admin:agentturns_session_change", args=[first.session_id])))
    assert read.index("And the mug?") < read.index("On its way.") < read.index("And now?")


def test_the_age_is_that_of_the_turn(browser: Client) -> None:
    turn = rows.a_turn()
    Turn.objects.filter(pk=turn.pk).update(created_at=timezone.now() - timedelta(hours=3, minutes=20))
    assert "started 3 hours ago" in words(page(browser, turn))
