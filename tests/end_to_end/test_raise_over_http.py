"""The main job: a turn on a real worker parks on its budget, is raised in the admin over HTTP, and completes."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.urls import reverse
from pytest_django.live_server_helper import LiveServer

from agentturns import Step, ToolCall, Turn
from project.desk.demo.browser import Browser, says
from tests.end_to_end.conftest import OpenShop
from tests.end_to_end.stage import grows, until_it_rests
from tests.end_to_end.vendor import ARGUMENTS
from tests.llmock_server import LLMock

LONG_ENOUGH_TO_COST = "I have thought about it at length. " * 1500
CONVERSATION = {"chat": "messages", "responses": "input", "messages": "messages"}


def raise_in_admin(server: LiveServer, turn: Turn, **fields: str) -> str:
    """Log in and send the raise's form as a browser does; what the page says then."""
    get_user_model().objects.create_superuser("maria", password="of the shop")
    browser = Browser(server.url)
    browser.submit(reverse("admin:login") + "?next=/admin/", username="maria", password="of the shop")
    return says(browser.submit(reverse("admin:agentturns_turn_raise", args=[turn.pk]), **fields))


def asks_for(tool: str, text: str = "") -> dict[str, object]:
    return {"type": "reply", "text": text, "tool_calls": [{"name": tool, "arguments": ARGUMENTS[tool]}]}


@pytest.mark.parametrize("vendors_wire", ["chat", "responses", "messages"])
def test_a_turn_parks_on_its_cost_is_raised_in_the_admin_and_completes_without_repeating_anything(
    open_shop: OpenShop, llmock: LLMock, live_server: LiveServer, vendors_wire: str
) -> None:
    shop = open_shop(llmock.openai_url, llmock.anthropic_url)
    shop.door.open()
    llmock.script(
        asks_for("look_up"), asks_for("send_letter", LONG_ENOUGH_TO_COST), {"type": "reply", "text": "All is done."}
    )
    with shop.turnworker():
        turn = until_it_rests(shop.clerks[vendors_wire].start("Where is order A-1001?"))
        assert (turn.status, turn.park_reason, turn.step_count) == ("parked", "max_cost", 2)
        assert turn.steps.get(index=1).cost < Decimal("0.01") < turn.cost
        assert len(llmock.requests()) == 2

        said = raise_in_admin(live_server, turn, max_cost="1.00", reason="The customer waits.")
        assert said == f"Turn {turn.pk} is raised and resumed: max_cost $1.00."
        turn = until_it_rests(turn)

    assert (turn.status, turn.answer) == ("completed", "All is done.")
    assert list(Step.objects.values_list("index", "attempts").order_by("index")) == [(1, 1), (2, 1), (3, 1)]
    calls = ToolCall.objects.order_by("pk").values_list("name", "status")
    assert list(calls) == [("look_up", "completed"), ("send_letter", "completed")]
    assert shop.effects() == ["look_up", "send_letter"]
    conversations = [body[CONVERSATION[vendors_wire]] for body in llmock.bodies()]
    assert len(conversations) == 3 and grows(conversations)
    assert llmock.verdict()["findings"] == []
    change = turn.budget_changes.get()
    assert (change.cap, change.by, change.reason) == ("max_cost", get_user_model().objects.get(), "The customer waits.")
    assert LogEntry.objects.filter(object_id=str(turn.pk)).count() == 1
