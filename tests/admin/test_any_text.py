"""Every page with nothing, with the usual, and with whatever a model or a caller may write."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agentturns import BudgetChange, Notice, Session, Turn
from tests.admin import rows
from tests.admin.operators import staff, words

pytestmark = pytest.mark.django_db

SCRIPT = "<script>alert('owned')</script>"
NASTY = f"{SCRIPT}<img src=x onerror=alert(1)>\"'{{{{ 7 }}}}{{% url %}} https://evil.example \u202etxt.exe\u200f"
LONG = "x" * 1_000_000


class Page(HTMLParser):
    """What a browser would run or load on a page, however it is written."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and not given.get("src")):
            self.problems.append(f"inline {tag}")
        self.problems += [f"{tag} {name}" for name in given if name == "style" or name.startswith("on")]
        for name in ("src", "href", "action"):
            address = given.get(name) or ""
            self.links.append(address)
            if address.startswith(("http:", "https:", "//", "javascript:", "data:")):
                self.problems.append(f"{tag} {name}={address}")


def empty() -> Turn:
    return rows.a_turn(limits={}, input="", model="x", agent="a")


def typical() -> Turn:
    call = rows.a_question(note="above £25")
    turn = rows.a_turn(
        rows.a_step(rows.a_call()), rows.a_step(call), status="parked", park_reason="approval", tenant="acme"
    )
    Notice.objects.create(turn=turn, after_step=1, kind="tool_budget", text="Few left.")
    BudgetChange.objects.create(turn=turn, cap="max_cost", old="0.1", new="0.25", reason="ok", at=turn.created_at)
    return turn


def extreme() -> Turn:
    text, name = NASTY + LONG, NASTY[:100]
    asked = rows.a_question(name, arguments={NASTY: [NASTY, LONG]}, raw_arguments=text, note=text)
    ran = rows.a_call(name, arguments={}, raw_arguments=text, output_text=text, result={NASTY: LONG}, error=text)
    ran |= {"decided_by_name": name, "approval": "approved"}
    output = [{"type": "text", "text": text}, {"type": "reasoning", NASTY: LONG}, NASTY, None, 7]
    said = {"model": name, "request_id": name, "stop_reason": name[:60], "error": text}
    turn = rows.a_turn(
        rows.a_step(ran, output=output, price_source=name, **said),
        rows.a_step(asked, output=NASTY, attempts=9, **said),
        status="parked",
        park_reason="approval",
        **dict.fromkeys(("agent", "tenant", "user_name", "model", "acted_by"), name),
        **dict.fromkeys(("input", "answer", "instructions", "tool_definitions", "error_message", "acted_reason"), text),
        context={NASTY: LONG},
        acted_at=timezone.now(),
    )
    Session.objects.filter(pk=turn.session_id).update(metadata={NASTY: LONG}, user_name=name)
    Notice.objects.create(turn=turn, after_step=1, kind="tool_budget", text=text)
    BudgetChange.objects.create(turn=turn, cap="max_cost", new="0.25", by_name=name, reason=text, at=turn.created_at)
    return turn


def failed() -> Turn:
    return rows.a_turn(status="failed", error_code=NASTY[:60], error_message=NASTY + LONG)


def fresh_step() -> Turn:
    return rows.a_turn(
        rows.a_step(
            status="started",
            cost=None,
            input_tokens=None,
            output_tokens=None,
            output=[],
            completed_at=None,
            price_source="x",
        )
    )


STATES = [
    empty,
    typical,
    extreme,
    failed,
    fresh_step,
    rows.in_doubt,
    rows.without_price,
    rows.out_of_calls,
    rows.out_of_steps,
]


def addresses(turn: Turn) -> Iterator[str]:
    for model in ("turn", "toolcall", "session", "step", "budgetchange"):
        yield reverse(f"admin:agentturns_{model}_changelist")
    yield reverse("admin:agentturns_toolcall_changelist") + "?decision=all"
    own = {"turn": [turn.pk], "session": [turn.session_id]}
    for model, pks in (
        *own.items(),
        ("step", turn.steps.values_list("pk", flat=True)),
        ("toolcall", turn.tool_calls.values_list("pk", flat=True)),
        ("budgetchange", turn.budget_changes.values_list("pk", flat=True)),
    ):
        for pk in pks:
            yield reverse(f"admin:agentturns_{model}_change", args=[pk])
            yield reverse(f"admin:agentturns_{model}_history", args=[pk])
    yield reverse("admin:agentturns_turn_raise", args=[turn.pk])
    yield reverse("admin:agentturns_turn_lower", args=[turn.pk])


@pytest.mark.parametrize("make", STATES)
def test_every_page_shows_any_text_as_text_and_runs_nothing_of_it(browser: Client, make: Any) -> None:
    turn = make()
    pages = {address: browser.get(address, follow=True) for address in addresses(turn)}
    chosen = {"action": "raise_budget", "index": "0", "_selected_action": turn.pk}
    pages["raise several"] = browser.post("/admin/agentturns/turn/", chosen)
    for address, response in pages.items():
        html = response.content.decode()
        page = Page(html)
        assert response.status_code == 200, address
        assert page.problems == [], address
        assert SCRIPT not in html, address
        assert not [link for link in page.links if "evil.example" in link and "?tenant=" not in link], address


def test_a_model_cannot_turn_around_or_hide_what_is_approved(browser: Client) -> None:
    turn = rows.asking(rows.a_question(arguments={"to": "alice\u202eecila\u200b\u2066"}))
    call = turn.tool_calls.get()
    for name, pk in (("turn", turn.pk), ("toolcall", call.pk)):
        page = browser.get(reverse(f"admin:agentturns_{name}_change", args=[pk]))
        assert r'"to": "alice\u202eecila\u200b\u2066"' in words(page)
        assert "\u202e" not in page.content.decode()


def test_a_page_of_long_texts_is_cut_and_says_so(browser: Client) -> None:
    turn = extreme()
    page = browser.get(reverse("admin:agentturns_turn_change", args=[turn.pk]))
    assert f"The first 20000 of {len(NASTY + LONG)} characters." in words(page)
    assert len(page.content) < 400_000


def test_who_was_first_is_told_as_text_too(browser: Client) -> None:
    turn = rows.over_cost()
    turn.raise_budget(by=staff(SCRIPT, "raise_budget"), reason=NASTY, max_cost="1")
    response = browser.post(f"/admin/agentturns/turn/{turn.pk}/raise/", {"max_cost": "2", "reason": NASTY}, follow=True)
    assert "acted on it" in words(response)
    assert SCRIPT not in response.content.decode()


def test_the_style_sheet_is_served_and_names_no_other_site(browser: Client) -> None:
    page = browser.get("/admin/agentturns/turn/").content.decode()
    assert "agentturns/admin.css" in page
    found = finders.find("agentturns/admin.css")
    assert found is not None
    with open(str(found), encoding="utf-8") as sheet:
        assert not {"http:", "https:", "@import", "url("} & set(sheet.read().split())
