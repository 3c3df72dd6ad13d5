"""Raise budget and resume, for turns chosen in the list."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from agentturns import BudgetChange, Turn
from agentturns.admin import raise_budget
from tests.admin import rows
from tests.admin.operators import messages_of, staff, words

pytestmark = pytest.mark.django_db

LIST = "/admin/agentturns/turn/"


def choose(browser: Client, *turns: Turn, query: str = "", **fields: Any) -> Any:
    """Choose the action in the list: leads to the form."""
    chosen = {"action": "raise_budget", "index": "0", "_selected_action": [turn.pk for turn in turns]}
    return browser.post(f"{LIST}{query}", {**chosen, **fields})


def confirm(browser: Client, *turns: Turn, query: str = "", **fields: Any) -> Any:
    """Send the form."""
    chosen = {"action": "raise_budget", "post": "yes", "_selected_action": [turn.pk for turn in turns]}
    return browser.post(f"{LIST}{query}", {**chosen, "reason": "busy day", **fields}, follow=True)


def statuses(*turns: Turn) -> list[str]:
    return [Turn.objects.get(pk=turn.pk).status for turn in turns]


def test_the_form_shows_each_turn_with_todays_figures(browser: Client) -> None:
    cost, calls, done = rows.over_cost(tenant="acme"), rows.out_of_calls(), rows.a_turn(status="completed", limits={})
    page = choose(browser, cost, calls, done)
    read = words(page)
    assert "Raise the budgets of 3 turns and resume them" in read
    assert "2 of the 3 turns chosen wait for a budget." in read
    assert f"#{cost.pk} parked, cost limit reached support , acme $0.30 of $0.25 2 calls 3 of 50 steps" in read
    assert f"#{calls.pk} parked, tool calls used up support $0.10 of $0.25 2 of 2 calls 1 of 50 steps" in read
    assert list(page.context["form"].fields) == ["max_cost", "max_tool_calls", "max_steps", "reason"]
    assert statuses(cost, calls) == ["parked", "parked"]


def test_the_form_as_shown_raises_the_turns_it_shows(browser: Client) -> None:
    first, second = rows.over_cost(), rows.over_cost()
    html = choose(browser, first, second).content.decode()
    for turn in (first, second):
        assert f'<input type="hidden" name="_selected_action" value="{turn.pk}">' in html
    response = confirm(browser, first, second, max_cost="0.50")
    assert statuses(first, second) == ["queued", "queued"]
    assert sorted(messages_of(response)) == [
        f"Turn {turn.pk} is raised and resumed: max_cost $0.50." for turn in (first, second)
    ]
    assert set(BudgetChange.objects.values_list("reason", flat=True)) == {"busy day"}


def test_one_turn_may_be_chosen_alone(browser: Client) -> None:
    turn = rows.over_cost()
    assert "Raise the budget of 1 turn and resume it" in words(choose(browser, turn))
    confirm(browser, turn, max_cost="0.50")
    assert statuses(turn) == ["queued"]


def test_turns_the_value_does_not_fit_are_left_and_told_with_the_reason(browser: Client) -> None:
    fits, dear, calls = rows.over_cost(), rows.over_cost(limits={"max_cost": "2"}), rows.out_of_calls()
    unpriced, done = rows.without_price(), rows.a_turn(status="completed")
    told = messages_of(confirm(browser, fits, dear, calls, unpriced, done, max_cost="0.50"))
    assert statuses(fits, dear, calls, unpriced, done) == ["queued", "parked", "parked", "parked", "completed"]
    for turn, why in (
        (dear, "max_cost=$0.50 is not above what stands"),
        (calls, "max_tool_calls is exceeded too"),
        (unpriced, "tick “Allow steps without a known price”"),
        (done, "is not waiting for a budget"),
    ):
        [message] = [text for text in told if text.startswith(f"Turn {turn.pk} is not raised. ")]
        assert why in message
    assert len(told) == 5


def test_several_caps_are_raised_together(browser: Client) -> None:
    calls, unpriced = rows.out_of_calls(), rows.without_price(limits={"max_cost": "0.25", "max_tool_calls": 1})
    confirm(browser, calls, unpriced, max_cost="0.50", max_tool_calls="9", unpriced="on")
    assert statuses(calls, unpriced) == ["queued", "queued"]
    assert Turn.objects.get(pk=calls.pk).limit("max_cost") == Decimal("0.50")


def test_a_form_that_cannot_be_read_comes_back_and_changes_nothing(browser: Client) -> None:
    turn = rows.over_cost()
    response = confirm(browser, turn, max_cost="0,50", reason="")
    assert set(response.context["form"].errors) == {"max_cost", "reason"}
    assert f"#{turn.pk} parked" in words(response)
    assert statuses(turn) == ["parked"]


def test_a_turn_raised_by_somebody_else_meanwhile_is_told_though_the_list_is_filtered(browser: Client) -> None:
    mine, taken = rows.over_cost(), rows.over_cost()
    taken.raise_budget(by=staff("anna", "raise_budget"), reason="first", max_cost="0.60")
    told = messages_of(confirm(browser, mine, taken, query="?status__exact=parked", max_cost="0.50"))
    assert statuses(mine) == ["queued"]
    [message] = [text for text in told if text.startswith(f"Turn {taken.pk} is not raised. ")]
    assert "anna acted on it at" in message


def test_a_price_allowed_by_somebody_else_meanwhile_is_told_too(browser: Client) -> None:
    taken = rows.without_price()
    taken.raise_budget(by=staff("anna", "raise_budget"), reason="first", unpriced="allow")
    [message] = messages_of(confirm(browser, taken, unpriced="on"))
    assert "anna acted on it at" in message


def test_all_that_match_the_filter_may_be_chosen_and_only_they(browser: Client) -> None:
    acme = [rows.over_cost(tenant="acme") for _ in range(3)]
    rows.over_cost(tenant="globex")
    page = choose(browser, acme[0], query="?tenant=acme", select_across="1")
    assert [row.turn.pk for row in page.context["rows"]] == [turn.pk for turn in reversed(acme)]


def test_what_was_chosen_across_pages_is_confirmed_as_it_was_shown(browser: Client) -> None:
    shown = rows.over_cost()
    rows.over_cost()
    response = confirm(browser, shown, max_cost="0.50", select_across="1")
    assert len(messages_of(response)) == 1


def test_too_many_at_once_are_refused_with_the_number(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raise_budget, "MOST_AT_ONCE", 2)
    turns = [rows.over_cost() for _ in range(3)]
    response = choose(browser, turns[0], select_across="1")
    assert response.status_code == 302
    assert "At most 2 turns are raised at once" in messages_of(browser.get(LIST))[0]
    assert statuses(*turns) == ["parked"] * 3


def test_without_the_permission_there_is_no_action_and_a_post_is_refused(viewers_browser: Client) -> None:
    turn = rows.over_cost()
    assert 'value="raise_budget"' not in viewers_browser.get(LIST).content.decode()
    assert choose(viewers_browser, turn).status_code == 403
    assert confirm(viewers_browser, turn, max_cost="0.50").status_code == 403
    assert statuses(turn) == ["parked"]


@pytest.mark.parametrize("chosen", ["x", "-1", "9" * 40, "1 OR 1"])
def test_ids_made_up_by_hand_raise_nothing(browser: Client, chosen: str) -> None:
    turn = rows.over_cost()
    data = {"action": "raise_budget", "post": "yes", "_selected_action": chosen, "max_cost": "9", "reason": "x"}
    assert browser.post(LIST, data).status_code == 400
    assert statuses(turn) == ["parked"]
