"""Raise budget and resume, from one turn's page."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

from agentturns import BudgetChange, Turn
from agentturns.money.budget import UNPRICED
from tests.admin import rows
from tests.admin.operators import browser_of, messages_of, staff, words

pytestmark = pytest.mark.django_db


def address(turn: Turn) -> str:
    return f"/admin/agentturns/turn/{turn.pk}/raise/"


def post(browser: Client, turn: Turn, **fields: Any) -> Any:
    return browser.post(address(turn), {"reason": "a good customer", **fields}, follow=True)


def test_the_form_shows_todays_figures_of_every_limited_cap_and_no_other(browser: Client) -> None:
    turn = rows.over_cost()
    page = browser.get(address(turn))
    read = words(page)
    assert turn.waiting_for in read
    assert "Cost max_cost $0.30 $0.25" in read
    assert "Steps max_steps 3 50 steps" in read
    assert 'placeholder="above $0.30"' in page.content.decode()
    assert list(page.context["form"].fields) == ["max_cost", "max_steps", "reason"]


def test_a_raise_resumes_the_turn_and_says_what_was_understood(browser: Client, operator: User) -> None:
    turn = rows.over_cost()
    response = post(browser, turn, max_cost="0.5")
    assert messages_of(response) == [f"Turn {turn.pk} is raised and resumed: max_cost $0.50."]
    assert response.redirect_chain == [(f"/admin/agentturns/turn/{turn.pk}/change/", 302)]
    turn.refresh_from_db()
    assert (turn.status, turn.limit("max_cost")) == ("queued", Decimal("0.50"))
    change = BudgetChange.objects.get()
    assert (change.by, change.reason) == (operator, "a good customer")


def test_a_raise_leaves_one_line_in_the_admins_log(browser: Client) -> None:
    post(browser, rows.over_cost(), max_cost="0.50")
    [entry] = LogEntry.objects.all()
    assert "$0.25 to $0.50" in entry.change_message


def test_a_failed_turn_is_revived_by_a_raise(browser: Client) -> None:
    turn = rows.out_of_steps()
    post(browser, turn, max_steps="5")
    turn.refresh_from_db()
    assert (turn.status, turn.limit("max_steps")) == ("queued", 5)


def test_seconds_may_have_a_fraction(browser: Client) -> None:
    turn = rows.a_turn(status="parked", park_reason="timeout", limits={"timeout": 1.5}, stretch_seconds=2.0)
    post(browser, turn, timeout="2.5")
    turn.refresh_from_db()
    assert turn.limit("timeout") == 2.5


@pytest.mark.parametrize(
    ("fields", "field", "sentence"),
    [
        ({"max_cost": "0.28"}, "max_cost", "not above what stands (spent $0.30, limit $0.25)"),
        ({"max_cost": "0,50"}, "max_cost", "write digits with “.” as the decimal mark"),
        ({"max_cost": "1,000"}, "max_cost", "without a thousands separator"),
        ({"max_cost": "1e3"}, "max_cost", "not a number"),
        ({"max_cost": "-1"}, "max_cost", "not a number"),
        ({"max_cost": "NaN"}, "max_cost", "not a number"),
        ({"max_cost": "0.5000000001"}, "max_cost", "more than nine decimals"),
        ({"max_cost": "9" * 30}, "max_cost", "beyond"),
        ({"max_cost": "9" * 5_000}, "max_cost", "at most 40 characters"),
        ({"max_steps": "60.5"}, "max_steps", "not a whole number"),
        ({"max_steps": "60"}, "max_cost", "max_cost is exceeded too"),
        ({}, "__all__", "write a new value for at least one limit"),
        ({"max_cost": "0.50", "reason": "  "}, "reason", "Write a reason"),
    ],
)
def test_a_value_that_cannot_be_used_is_told_at_its_field_and_changes_nothing(
    browser: Client, fields: dict[str, str], field: str, sentence: str
) -> None:
    turn = rows.over_cost()
    response = post(browser, turn, **fields)
    assert sentence in " ".join(response.context["form"].errors[field])
    assert "Nothing was changed." in words(response)
    turn.refresh_from_db()
    assert (turn.status, turn.budget_overrides) == ("parked", {})


def test_what_was_written_is_still_there_after_a_refusal(browser: Client) -> None:
    page = post(browser, rows.over_cost(), max_cost="0.28").content.decode()
    assert 'value="0.28"' in page
    assert "a good customer" in page


def test_a_decimal_comma_is_read_where_people_write_one(browser: Client) -> None:
    turn = rows.over_cost()
    with translation.override("de"):
        browser.post(address(turn), {"max_cost": "0,50", "reason": "ok"}, headers={"accept-language": "de"})
    turn.refresh_from_db()
    assert turn.limit("max_cost") == Decimal("0.50")


def test_steps_without_a_price_are_allowed_by_their_own_box(browser: Client) -> None:
    turn = rows.without_price()
    assert "Allow steps without a known price" in words(browser.get(address(turn)))
    post(browser, turn, unpriced="on")
    turn.refresh_from_db()
    assert (turn.status, turn.budget_overrides) == ("queued", {UNPRICED: "allow"})


def test_an_unpriced_turn_is_not_resumed_by_money_alone(browser: Client) -> None:
    turn = rows.without_price()
    response = post(browser, turn, max_cost="5")
    assert "tick “Allow steps without a known price”" in words(response)
    turn.refresh_from_db()
    assert turn.status == "parked"


def test_the_box_is_not_shown_where_every_step_has_a_price(browser: Client) -> None:
    assert "Allow steps without a known price" not in words(browser.get(address(rows.over_cost())))


@pytest.mark.parametrize(
    ("make", "first", "written"),
    [
        (rows.over_cost, {"max_cost": "0.50"}, {"max_cost": "0.75"}),
        (rows.without_price, {"unpriced": "allow"}, {"unpriced": "on"}),
    ],
)
def test_whoever_comes_second_is_told_who_was_first(
    browser: Client, make: Any, first: dict[str, str], written: dict[str, str]
) -> None:
    turn = make()
    assert set(written) <= set(browser.get(address(turn)).context["form"].fields)
    turn.raise_budget(by=staff("anna", "raise_budget"), reason="first", **first)
    [message] = messages_of(post(browser, turn, **written))
    assert f"Turn {turn.pk} is queued" in message
    assert "anna acted on it at" in message
    assert BudgetChange.objects.filter(by_name="olga").count() == 0


def test_a_second_press_of_the_button_is_harmless(browser: Client) -> None:
    turn = rows.over_cost()
    post(browser, turn, max_cost="0.50")
    [message] = messages_of(post(browser, turn, max_cost="0.50"))
    assert "olga acted on it" in message
    assert BudgetChange.objects.count() == 1


def test_the_form_of_a_turn_that_waits_for_no_budget_leads_to_its_page(browser: Client) -> None:
    turn = rows.asking()
    response = browser.get(address(turn), follow=True)
    assert response.redirect_chain[0][0] == f"/admin/agentturns/turn/{turn.pk}/change/"
    assert "is not waiting for a budget" in messages_of(response)[0]


@pytest.mark.parametrize(
    "permissions", [("view_turn",), ("raise_budget",), ("view_turn", "change_turn", "cancel_turn")]
)
def test_it_takes_the_permission_to_raise_and_to_look(db: None, permissions: tuple[str, ...]) -> None:
    turn = rows.over_cost()
    browser = browser_of(staff("pete", *permissions))
    assert browser.get(address(turn)).status_code == 403
    assert post(browser, turn, max_cost="0.50").status_code == 403
    turn.refresh_from_db()
    assert turn.status == "parked"


def test_a_post_without_a_token_is_refused_and_one_with_it_works(operator: User) -> None:
    turn = rows.over_cost()
    browser = browser_of(operator, enforce_csrf_checks=True)
    fields = {"max_cost": "0.50", "reason": "ok"}
    assert browser.post(address(turn), fields).status_code == 403
    page = browser.get(address(turn))
    token = str(page.context["csrf_token"])
    assert browser.post(address(turn), {**fields, "csrfmiddlewaretoken": token}).status_code == 302
    turn.refresh_from_db()
    assert turn.status == "queued"


def test_a_stranger_is_sent_to_the_login(db: None) -> None:
    response = Client().get(address(rows.over_cost()))
    assert response.status_code == 302
    assert response["Location"].startswith("/admin/login/")
