"""Tool calls, sessions, steps and budget changes; and sites of one's own."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import path

from agentturns import ToolCall, Turn
from agentturns.admin import TurnAdmin
from tests.admin import rows
from tests.admin.operators import browser_of, staff, words

pytestmark = pytest.mark.django_db

CALLS = "/admin/agentturns/toolcall/"


def listed(response: Any) -> list[str]:
    return [call.name for call in response.context["cl"].result_list]


def test_the_call_list_opens_on_open_decisions_oldest_first(browser: Client) -> None:
    rows.asking(rows.a_question("first"), rows.a_call("ran"))
    rows.in_doubt()
    rows.asking(rows.a_question("last"))
    assert listed(browser.get(CALLS)) == ["first", "send_email", "last"]
    assert listed(browser.get(CALLS, {"decision": "all"})) == ["last", "send_email", "ran", "first"]


def test_calls_that_people_decided_can_be_listed(browser: Client) -> None:
    turn = rows.asking(rows.a_question("first"), rows.a_call("ran"))
    turn.tool_calls.get(name="first").approve()
    assert listed(browser.get(CALLS, {"decision": "decided"})) == ["first"]
    assert "0 tool calls" in words(browser.get(CALLS))


def test_the_call_list_shows_what_is_asked(browser: Client) -> None:
    rows.asking(rows.a_question(note="above £25"))
    assert 'issue_refund {"amount_pence": 4200} awaiting decision transactional #' in words(browser.get(CALLS))
    assert "above £25" in words(browser.get(CALLS))


@pytest.mark.parametrize("model", ["toolcall", "session", "budgetchange", "step"])
def test_each_list_takes_the_same_queries_for_many_rows(operator: User, model: str) -> None:
    def queries() -> int:
        client = browser_of(operator)
        with CaptureQueriesContext(connection) as captured:
            assert client.get(f"/admin/agentturns/{model}/").status_code == 200
        return len(captured)

    def make() -> None:
        rows.asking()
        rows.over_cost().raise_budget(max_cost="1", reason="ok")

    make()
    one = queries()
    for _ in range(10):
        make()
    assert queries() == one <= 8


def test_the_call_page_says_who_decided_and_why(browser: Client, operator: User) -> None:
    turn = rows.asking(tenant="acme", input="My mug broke", context={"order": 7})
    call = turn.tool_calls.get().decline(by=operator, reason="too much")
    read = words(browser.get(f"{CALLS}{call.pk}/change/"))
    assert "too much" in read
    assert "Declined by olga" in read
    assert "Not run: a person declined this call. Reason: too much" in read
    assert "My mug broke" in read
    assert '{ "order": 7 }' in read
    assert "/decide/" not in read


def test_the_step_page_shows_use_and_price(browser: Client) -> None:
    step = rows.a_turn(rows.a_step(cached_input_tokens=400)).steps.get()
    read = words(browser.get(f"/admin/agentturns/step/{step.pk}/change/"))
    assert "completed $0.10 gpt-5-mini · openai" in read
    assert "Input tokens 1,000 of them read from cache 400 of them written to cache –" in read
    assert "Price from genai-prices" in read


def test_steps_are_not_on_the_index_and_the_rest_is(browser: Client) -> None:
    index = browser.get("/admin/").content.decode()
    for model in ("turn", "toolcall", "session", "budgetchange"):
        assert f'href="/admin/agentturns/{model}/"' in index
        assert f'href="/admin/agentturns/{model}/add/"' not in index
    assert 'href="/admin/agentturns/step/"' not in index


def test_budget_changes_are_listed_newest_first_as_people_read_them(browser: Client, operator: User) -> None:
    rows.over_cost().raise_budget(by=operator, reason="a big customer", max_cost="0.8")
    rows.out_of_calls(limits={"max_tool_calls": 2}).raise_budget(reason="by code", max_tool_calls=1_500)
    page = words(browser.get("/admin/agentturns/budgetchange/"))
    assert page.index("max_tool_calls: 2 calls → 1,500 calls trusted code by code") < page.index(
        "max_cost: $0.25 → $0.80 olga a big customer"
    )
    filtered = words(browser.get("/admin/agentturns/budgetchange/", {"cap": "max_cost"}))
    assert "1 budget change" in filtered
    assert "1,500 calls" not in filtered


@pytest.mark.parametrize("model", ["toolcall", "session", "budgetchange", "step"])
def test_nothing_is_added_or_deleted_even_by_a_superuser(db: None, model: str) -> None:
    rows.asking()
    rows.over_cost().raise_budget(max_cost="1", reason="ok")
    browser = browser_of(User.objects.create_superuser("root"))
    assert browser.get(f"/admin/agentturns/{model}/add/").status_code == 403
    pk = browser.get(f"/admin/agentturns/{model}/").context["cl"].result_list[0].pk
    assert browser.post(f"/admin/agentturns/{model}/{pk}/delete/", {"post": "yes"}).status_code == 403
    assert browser.post(f"/admin/agentturns/{model}/{pk}/change/", {}).status_code == 403
    assert "delete_selected" not in browser.get(f"/admin/agentturns/{model}/").content.decode()


own_site = AdminSite(name="ops")


class OwnTurnAdmin(TurnAdmin):
    """A project's own: fewer columns, one tenant."""

    list_display = ("number", "state")

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).filter(tenant="acme")


own_site.register(Turn, OwnTurnAdmin)
urlpatterns = [path("ops/", own_site.urls)]


@override_settings(ROOT_URLCONF=__name__)
def test_a_site_of_ones_own_with_turns_alone_links_only_to_itself(operator: User) -> None:
    mine, others = rows.asking(tenant="acme"), rows.over_cost(tenant="globex")
    browser = browser_of(operator)
    listing = browser.get("/ops/agentturns/turn/").content.decode()
    assert f'/ops/agentturns/turn/{mine.pk}/change/"' in listing
    assert f"/{others.pk}/" not in listing
    page = browser.get(f"/ops/agentturns/turn/{mine.pk}/change/")
    assert page.status_code == 200
    assert 'value="approve"' not in page.content.decode()
    linked = re.findall(r'(?:href|action)="(/[^"]*)"', page.content.decode())
    assert linked
    assert [address for address in linked if not address.startswith(("/ops/", "/static/"))] == ["/"]
    canceled = browser.post(f"/ops/agentturns/turn/{mine.pk}/cancel/")
    assert canceled["Location"] == f"/ops/agentturns/turn/{mine.pk}/change/"


@override_settings(ROOT_URLCONF=__name__)
@pytest.mark.parametrize("name", ["change", "raise", "lower", "cancel", "retry"])
def test_rows_that_a_subclass_hides_cannot_be_reached_or_changed(operator: User, name: str) -> None:
    hidden = rows.over_cost(tenant="globex")
    browser = browser_of(operator)
    url = f"/ops/agentturns/turn/{hidden.pk}/{name}/"
    fields = {"max_cost": "1", "reason": "x"}
    assert browser.post(url, fields).status_code in (302, 403)
    chosen = {"action": "raise_budget", "post": "yes", "_selected_action": hidden.pk}
    browser.post("/ops/agentturns/turn/", {**chosen, **fields})
    hidden.refresh_from_db()
    assert (hidden.status, hidden.budget_overrides) == ("parked", {})


def test_a_user_who_may_only_see_turns_finds_no_other_list(db: None) -> None:
    browser = browser_of(staff("ted", "view_turn"))
    assert browser.get(CALLS).status_code == 403
    assert ToolCall.objects.count() == 0
    assert "/agentturns/toolcall/" not in browser.get("/admin/").content.decode()
