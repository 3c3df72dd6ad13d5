"""Prices in the admin: entered as an operator writes them, applied at once, and never seen by who may not."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agentturns import Step, Turn
from agentturns.models import repricing
from agentturns.models.price import Price
from tests.admin import rows
from tests.admin.operators import browser_of, messages_of, staff, words

pytestmark = pytest.mark.django_db(transaction=True)

PRICES = "/admin/agentturns/price/"
PERMISSIONS = ("view_price", "add_price", "change_price", "delete_price")


@pytest.fixture
def keeper(transactional_db: None) -> User:
    """Somebody who keeps the prices."""
    return staff("petra", *PERMISSIONS)


@pytest.fixture
def browser(keeper: User) -> Client:
    return browser_of(keeper)


def written(**fields: Any) -> dict[str, Any]:
    """The form as filled in."""
    return {
        "provider": "openai",
        "model": "gpt-5-mini",
        "effective_from_0": "",
        "effective_from_1": "",
        "input": "0.25",
        "cached_input": "",
        "cache_write": "",
        "cache_write_1h": "",
        "output": "2",
        "note": "",
        **fields,
    }


def add(browser: Client, **fields: Any) -> Any:
    return browser.post(f"{PRICES}add/", written(**fields), follow=True)


def errors_of(response: Any) -> dict[str, list[str]]:
    return dict(response.context["adminform"].form.errors)


def test_a_price_that_is_added_prices_what_waited_for_it_and_says_so(browser: Client) -> None:
    waiting = rows.without_price()
    response = add(browser)
    waiting.refresh_from_db()
    # A thousand tokens in at $0.25 a million, two hundred out at $2.
    assert (waiting.status, waiting.cost) == ("queued", Decimal("0.00065"))
    assert "1 step without a price has got this one; 1 turn goes on." in messages_of(response)


def test_a_price_that_is_changed_prices_what_it_did_not_before(browser: Client) -> None:
    price = Price.objects.create(provider="openai", model="other", input=1, output=1)
    waiting = rows.without_price()
    response = browser.post(f"{PRICES}{price.pk}/change/", written(model="gpt-*"), follow=True)
    waiting.refresh_from_db()
    assert waiting.status == "queued"
    assert "1 turn goes on" in " ".join(messages_of(response))


def test_a_price_that_covers_nothing_stored_says_nothing_of_steps(browser: Client) -> None:
    assert not any("step" in message for message in messages_of(add(browser)))


def test_what_is_left_to_the_workers_is_told(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repricing, "MOST_TURNS", 1)
    rows.without_price()
    rows.without_price()
    assert "the workers do the rest at their next sweep" in " ".join(messages_of(add(browser)))


def test_a_price_that_could_not_be_applied_is_stored_and_told(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(price: Price) -> None:
        raise RuntimeError

    monkeypatch.setattr(repricing, "reprice_covered", fail)
    assert "The price is stored; the workers apply it" in " ".join(messages_of(add(browser)))
    assert Price.objects.get().applied_at is None


def test_adding_and_changing_are_in_the_admins_log(browser: Client, keeper: User) -> None:
    add(browser)
    price = Price.objects.get()
    browser.post(f"{PRICES}{price.pk}/change/", written(output="3"))
    assert list(LogEntry.objects.order_by("pk").values_list("user", "object_id", "action_flag")) == [
        (keeper.pk, str(price.pk), 1),
        (keeper.pk, str(price.pk), 2),
    ]
    assert "Output" in LogEntry.objects.latest("pk").change_message


def test_deleting_a_price_changes_no_step(browser: Client) -> None:
    waiting = rows.without_price()
    price = Price.objects.create(provider="openai", model="*", input=1, output=1)
    before = Step.objects.values().get(), Turn.objects.values().get(pk=waiting.pk)
    assert before[0]["cost"] == Decimal("0.0012")
    browser.post(f"{PRICES}{price.pk}/delete/", {"post": "yes"})
    assert Price.objects.count() == 0
    assert (Step.objects.values().get(), Turn.objects.values().get(pk=waiting.pk)) == before


def test_amounts_are_exact_to_the_nano_dollar(browser: Client) -> None:
    add(browser, input="0.000000001", cached_input="0.1")
    price = Price.objects.get()
    assert (price.input, price.cached_input, price.cache_write) == (Decimal("0.000000001"), Decimal("0.1"), None)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"input": "-1"}, "input"),
        ({"output": "0.0000000001"}, "output"),
        ({"output": "much"}, "output"),
        ({"input": ""}, "input"),
        ({"provider": "no-such-alias"}, "provider"),
        ({"model": "  "}, "model"),
        ({"effective_from_0": "soon", "effective_from_1": "12:00"}, "effective_from"),
    ],
)
def test_what_is_no_price_is_refused_at_its_field(browser: Client, fields: dict[str, str], wrong: str) -> None:
    assert list(errors_of(add(browser, **fields))) == [wrong]
    assert Price.objects.count() == 0


@pytest.mark.parametrize(
    ("since", "said"),
    [
        ({}, "without a date already"),
        ({"effective_from_0": "2026-01-01", "effective_from_1": "00:00"}, "from that moment on already"),
    ],
)
def test_a_second_price_of_the_same_moment_is_refused_with_a_sentence(
    browser: Client, since: dict[str, str], said: str
) -> None:
    add(browser, **since)
    assert said in str(errors_of(add(browser, **since)))
    assert Price.objects.count() == 1


def test_the_list_shows_rates_and_what_an_empty_one_stands_for(browser: Client) -> None:
    Price.objects.create(provider="openai", model="gpt-*", input=2, cache_write="2.5", output=10, note="by contract")
    Price.objects.create(
        provider="openai", model="o1", input=1, output=1, effective_from=timezone.now() - timedelta(days=3)
    )
    page = words(browser.get(PRICES))
    assert "openai : gpt-* always $2.00 as input $2.50 $2.50 $10.00 by contract" in page
    assert "openai : o1 3 days ago $1.00 as input as input as input $1.00" in page


def test_the_list_names_the_models_that_turns_wait_for_and_leads_to_their_price(browser: Client) -> None:
    rows.without_price()
    rows.without_price()
    rows.a_turn(rows.a_step(cost=None, price_source="", model="unasked"), status="completed")
    response = browser.get(PRICES)
    assert "Turns wait for the price of: openai : gpt-5-mini 2 turns Add its price" in words(response)
    assert "unasked" not in words(response)
    form = browser.get(f"{PRICES}add/?provider=openai&model=gpt-5-mini")
    assert f'href="{PRICES}add/?provider=openai&amp;model=gpt-5-mini"' in response.content.decode()
    assert '<option value="openai" selected>' in form.content.decode()
    assert 'value="gpt-5-mini"' in form.content.decode()


def test_the_name_asked_for_is_the_one_a_price_is_wanted_for(browser: Client) -> None:
    turn = rows.without_price()
    Step.objects.filter(turn=turn).update(model="gpt-5-mini-2025-08-07", requested_model="gpt-5-mini")
    assert "openai : gpt-5-mini 1 turn " in words(browser.get(PRICES))


def test_a_price_of_an_alias_that_is_gone_can_still_be_changed(browser: Client) -> None:
    price = Price.objects.create(provider="former", model="m", input=1, output=1)
    browser.post(f"{PRICES}{price.pk}/change/", written(provider="former", model="m", output="9"))
    price.refresh_from_db()
    assert price.output == 9


def test_text_of_others_is_escaped(browser: Client) -> None:
    bad = "<script>alert(1)</script>"
    Price.objects.create(provider="openai", model=bad, note=bad, input=1, output=1)
    turn = rows.without_price()
    Step.objects.filter(turn=turn).update(model=f"{bad}2")
    for page in (PRICES, f"{PRICES}{Price.objects.get().pk}/change/"):
        assert bad not in browser.get(page).content.decode()


def test_who_may_only_look_sees_prices_and_changes_none(transactional_db: None) -> None:
    price = Price.objects.create(provider="openai", model="gpt-*", input=2, output=10)
    rows.without_price(model="openai:other")
    browser = browser_of(staff("victor", "view_price"))
    assert "gpt-*" in words(browser.get(PRICES))
    assert "Add its price" not in words(browser.get(PRICES))
    assert "gpt-*" in words(browser.get(f"{PRICES}{price.pk}/change/"))
    for refused in (f"{PRICES}add/", f"{PRICES}{price.pk}/change/", f"{PRICES}{price.pk}/delete/"):
        assert browser.post(refused, written(post="yes")).status_code == 403
    price.refresh_from_db()
    assert price.output == 10


def test_prices_are_for_who_has_their_permissions(operator: User) -> None:
    browser = browser_of(operator)
    assert browser.get(PRICES).status_code == 403
    assert PRICES not in browser.get("/admin/").content.decode()


def test_the_list_takes_the_same_queries_for_many_prices(browser: Client, django_assert_max_num_queries: Any) -> None:
    for number in range(30):
        Price.objects.create(provider="openai", model=f"m{number}", input=1, output=1)
    with django_assert_max_num_queries(9):
        assert browser.get(PRICES).status_code == 200
