"""Lower budget, from one turn's page."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from agentturns import Turn
from tests.admin import rows
from tests.admin.operators import messages_of, words

pytestmark = pytest.mark.django_db


def address(turn: Turn) -> str:
    return f"/admin/agentturns/turn/{turn.pk}/lower/"


def post(browser: Client, turn: Turn, **fields: Any) -> Any:
    return browser.post(address(turn), {"reason": "too dear", **fields}, follow=True)


def test_a_limit_is_lowered_for_this_turn_with_one_line_in_the_log(browser: Client) -> None:
    turn = rows.a_turn(rows.a_step(), status="running", limits={"max_cost": "5"})
    assert "max_cost $0.10 $5.00" in words(browser.get(address(turn)))
    [message] = messages_of(post(browser, turn, max_cost="0.20", max_tool_calls="3"))
    assert message == (
        f"Turn {turn.pk} is lowered: max_cost $0.20, max_tool_calls 3 calls. It counts from its next step on."
    )
    turn.refresh_from_db()
    assert (turn.status, turn.budget_overrides) == ("running", {"max_cost": "0.20", "max_tool_calls": 3})
    assert "$5.00 to $0.20" in LogEntry.objects.get().change_message


def test_a_limit_is_not_lowered_below_what_is_spent(browser: Client) -> None:
    turn = rows.a_turn(rows.a_step(), status="running", limits={"max_cost": "5"})
    response = post(browser, turn, max_cost="0.05")
    assert "does not lower it (spent $0.10" in response.context["form"].errors["max_cost"][0]
    turn.refresh_from_db()
    assert turn.budget_overrides == {}


def test_a_finished_turn_has_nothing_to_lower(browser: Client) -> None:
    turn = rows.a_turn(status="completed")
    assert "its budget cannot be lowered" in messages_of(browser.get(address(turn), follow=True))[0]
    assert "its budget cannot be lowered" in messages_of(post(browser, turn, max_cost="0.05"))[0]


def test_it_takes_the_permission(viewers_browser: Client) -> None:
    turn = rows.a_turn(status="running")
    assert viewers_browser.get(address(turn)).status_code == 403
    assert post(viewers_browser, turn, max_cost="0.05").status_code == 403
