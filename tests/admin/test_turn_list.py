"""The turn list: what waits, why, what it cost, and what to press."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agentturns import Agent, Limits, Turn
from agentturns.admin import TurnAdmin
from tests.admin import rows
from tests.admin.operators import browser_of, words

pytestmark = pytest.mark.django_db

LIST = "/admin/agentturns/turn/"


def listed(response: Any) -> list[int]:
    return [turn.pk for turn in response.context["cl"].result_list]


def test_a_parked_turn_shows_its_status_reason_and_spent_against_limit(browser: Client) -> None:
    rows.over_cost(tenant="acme")
    page = browser.get(LIST)
    assert "parked cost limit reached" in words(page)
    assert "$0.30 of $0.25" in words(page)
    assert "3 steps · 3,600 tokens" in words(page)
    assert "support acme" in words(page)
    assert (
        '<progress class="agentturns-progress agentturns-progress--over" max="0.25" value="0.25"'
        in page.content.decode()
    )


def test_a_turn_held_by_another_cap_shows_that_cap_first(browser: Client) -> None:
    rows.out_of_calls()
    assert "2 of 2 calls $0.10 of $0.25" in words(browser.get(LIST))


def test_a_step_without_a_price_shows_as_unpriced_and_never_as_nothing(browser: Client) -> None:
    rows.without_price()
    page = words(browser.get(LIST))
    assert "unpriced, limit $0.25" in page
    assert "$0.00" not in page


def test_a_priced_and_an_unpriced_step_show_both(browser: Client) -> None:
    rows.a_turn(rows.a_step(), rows.a_step(cost=None, price_source=""), status="running")
    assert "$0.10 + 1 unpriced step of $0.25" in words(browser.get(LIST))


def test_the_agents_limit_of_today_is_shown(browser: Client) -> None:
    Agent("support", model="openai:gpt-5-mini", instructions="Help.", limits=Limits(max_cost=Decimal("4.20")))
    rows.a_turn(rows.a_step(), limits={})
    assert "$0.10 of $4.20" in words(browser.get(LIST))


def test_the_list_takes_as_many_queries_for_fifty_rows_as_for_one(operator: User) -> None:
    def queries() -> int:
        client = browser_of(operator)
        with CaptureQueriesContext(connection) as captured:
            client.get(LIST)
        return len(captured)

    Agent("support", model="openai:gpt-5-mini", instructions="Help.", limits=Limits(max_cost=1))
    rows.over_cost()
    one = queries()
    for make in (rows.over_cost, rows.asking, rows.without_price, rows.out_of_calls, rows.out_of_steps) * 9:
        make(limits={})
    assert queries() == one <= 8


@pytest.mark.parametrize(
    ("make", "way"),
    [
        (rows.over_cost, "Raise budget"),
        (rows.without_price, "Raise budget"),
        (rows.out_of_calls, "Raise budget"),
        (rows.out_of_steps, "Raise budget"),
        (rows.asking, "Decide"),
        (rows.in_doubt, "Decide"),
        (lambda: rows.a_turn(status="parked", park_reason="provider_error"), "Retry"),
        (lambda: rows.a_turn(status="failed", error_code="error"), "Retry"),
        (lambda: rows.a_turn(status="completed"), "–"),
        (lambda: rows.a_turn(status="queued"), "–"),
    ],
)
def test_each_turn_names_the_next_thing_to_press(browser: Client, make: Any, way: str) -> None:
    make()
    [cell] = re.findall(r'<td class="field-to_do">(.*?)</td>', browser.get(LIST).content.decode())
    assert re.sub("<.*?>", "", cell) == way


def test_somebody_who_may_only_look_is_offered_nothing(viewers_browser: Client) -> None:
    rows.over_cost()
    rows.asking()
    page = viewers_browser.get(LIST).content.decode()
    assert "$0.30 of $0.25" in page
    assert "Raise budget" not in page
    assert "Decide" not in page
    assert "_selected_action" not in page


def test_the_newest_turn_comes_first(browser: Client) -> None:
    made = [rows.a_turn().pk for _ in range(3)]
    assert listed(browser.get(LIST)) == made[::-1]


@pytest.mark.parametrize(
    "query",
    [
        {"status__exact": "parked"},
        {"park_reason__exact": "max_cost"},
        {"agent": "billing"},
        {"tenant": "acme"},
        {"model": "openai:other"},
    ],
)
def test_each_filter_leaves_only_its_rows(browser: Client, query: dict[str, str]) -> None:
    wanted = rows.over_cost(agent="billing", tenant="acme", model="openai:other")
    rows.a_turn(tenant="acme corporation")
    assert listed(browser.get(LIST, query)) == [wanted.pk]


def test_agents_and_models_declared_in_code_are_offered_as_filters(browser: Client) -> None:
    Agent("declared-today", model="openai:its-model", instructions="Help.")
    page = browser.get(LIST, {"agent": "removed-yesterday"}).content.decode()
    assert "declared-today" in page
    assert "openai:its-model" in page
    assert '<li class="selected">\n    <a href="?agent=removed-yesterday">' in page


def test_no_filter_asks_for_distinct_values(browser: Client) -> None:
    rows.over_cost(tenant="acme")
    with CaptureQueriesContext(connection) as captured:
        browser.get(LIST, {"tenant": "acme"})
    assert not [query["sql"] for query in captured if "DISTINCT" in query["sql"]]


def test_a_tenant_links_to_its_own_turns(browser: Client) -> None:
    rows.a_turn(tenant="acme & sons")
    assert f'href="{LIST}?tenant=acme+%26+sons"' in browser.get(LIST).content.decode()


def test_a_search_finds_text_and_number(browser: Client) -> None:
    first = rows.a_turn(input="The blue mug is broken")
    second = rows.a_turn(input=f"What became of request {first.pk}?")
    assert listed(browser.get(LIST, {"q": "BLUE mug"})) == [first.pk]
    assert listed(browser.get(LIST, {"q": str(first.pk)})) == [second.pk, first.pk]
    assert listed(browser.get(LIST, {"q": f"#{first.pk}"})) == [first.pk]
    assert listed(browser.get(LIST, {"q": "9" * 40})) == []


def test_paging_ends_only_at_the_end(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TurnAdmin, "list_per_page", 2)
    made = [rows.a_turn().pk for _ in range(31)]
    first = browser.get(LIST)
    assert "more than 22 turns" in words(first)
    seen = [pk for page in range(1, 17) for pk in listed(browser.get(LIST, {"p": page}))]
    assert seen == made[::-1]
    assert "31 turns" in words(browser.get(LIST, {"p": 16}))


def test_the_count_stops_a_few_pages_ahead(browser: Client) -> None:
    rows.a_turn()
    with CaptureQueriesContext(connection) as captured:
        browser.get(LIST)
    counts = [query["sql"] for query in captured if "COUNT(" in query["sql"]]
    assert len(counts) == 1
    assert "LIMIT 550" in counts[0]


def test_the_list_leaves_the_large_columns_in_the_database(browser: Client) -> None:
    rows.over_cost(input="x" * 100_000)
    with CaptureQueriesContext(connection) as captured:
        page = browser.get(LIST)
    read = " ".join(query["sql"] for query in captured if '"agentturns_turn"' in query["sql"])
    for column in ("answer", "instructions", "tool_definitions", "message", "error_message"):
        assert f'"agentturns_turn"."{column}"' not in read
    assert len(page.content) < 60_000


@pytest.mark.parametrize("query", [{"p": "9" * 30}, {"p": "-1"}, {"p": "x"}, {"o": "1"}, {"status__exact": "no"}])
def test_an_address_made_up_by_hand_gives_a_page(browser: Client, query: dict[str, str]) -> None:
    rows.a_turn()
    assert browser.get(LIST, query, follow=True).status_code == 200


def test_turns_are_never_added_edited_or_deleted_here(db: None) -> None:
    client = browser_of(User.objects.create_superuser("root"))
    turn = rows.over_cost()
    page = reverse("admin:agentturns_turn_change", args=[turn.pk])
    assert client.get(reverse("admin:agentturns_turn_add")).status_code == 403
    assert client.get(reverse("admin:agentturns_turn_delete", args=[turn.pk])).status_code == 403
    assert client.post(page, {"input": "other"}).status_code == 403
    assert "delete_selected" not in client.get(LIST).content.decode()
    deletion = {"action": "delete_selected", "_selected_action": turn.pk, "post": "yes"}
    client.post(LIST, deletion)
    assert Turn.objects.get(pk=turn.pk).input == turn.input


def test_the_list_needs_the_permission_to_view(db: None) -> None:
    assert browser_of(User.objects.create_user("nobody", is_staff=True)).get(LIST).status_code == 403
    assert Client().get(LIST).status_code == 302
