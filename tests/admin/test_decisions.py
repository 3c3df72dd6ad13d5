"""Decisions as POST buttons, on turns and on their calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client, override_settings

from agentturns import BudgetChange, ToolCall, Turn
from tests.admin import rows
from tests.admin.operators import VERBS, VIEWS, browser_of, messages_of, staff, words

pytestmark = pytest.mark.django_db


DECISIONS = ("approve", "decline", "answer", "rerun", "confirm")


def act(browser: Client, turn: Turn, verb: str, **fields: Any) -> Any:
    return browser.post(f"/admin/agentturns/turn/{turn.pk}/{verb}/", fields, follow=True)


def decide(browser: Client, call: ToolCall, decision: str, **fields: Any) -> Any:
    return browser.post(f"/admin/agentturns/toolcall/{call.pk}/decide/", {"decision": decision, **fields}, follow=True)


def the_call(turn: Turn) -> Any:
    return turn.tool_calls.get()


def test_a_waiting_turn_is_canceled_at_once_with_its_reason(browser: Client) -> None:
    turn = rows.over_cost()
    response = act(browser, turn, "cancel", reason="a duplicate")
    assert messages_of(response) == [f"Turn {turn.pk} is canceled."]
    turn.refresh_from_db()
    assert (turn.status, turn.error_message) == ("canceled", "Canceled by olga: a duplicate.")
    assert LogEntry.objects.get().change_message == "Canceled. a duplicate"


def test_a_running_turn_is_asked_to_stop(browser: Client) -> None:
    turn = rows.a_turn(status="running")
    assert messages_of(act(browser, turn, "cancel")) == [f"Turn {turn.pk} stops after its current call."]
    [again] = messages_of(act(browser, turn, "cancel"))
    assert "olga acted on it" in again


def test_a_turn_parked_on_a_fault_is_retried(browser: Client) -> None:
    turn = rows.a_turn(status="parked", park_reason="provider_error", error_message="The key was refused.")
    assert messages_of(act(browser, turn, "retry", reason="new key")) == [
        f"Turn {turn.pk} is queued. Waits for a worker."
    ]
    turn.refresh_from_db()
    assert (turn.status, turn.acted_by, turn.acted_reason) == ("queued", "olga", "new key")
    [again] = messages_of(act(browser, turn, "retry"))
    assert "nothing to retry; olga acted on it" in again
    assert LogEntry.objects.count() == 1


def test_an_approved_call_is_free_to_run_and_the_turn_goes_on(browser: Client, operator: User) -> None:
    turn = rows.asking()
    response = decide(browser, the_call(turn), "approve", note="seen the photo")
    assert messages_of(response) == [
        f"The call of issue_refund is approved. Turn {turn.pk} is queued. Waits for a worker."
    ]
    call = the_call(turn)
    assert (call.status, call.approval, call.decided_by, call.note) == (
        "pending", "approved", operator, "seen the photo",
    )  # fmt: skip
    assert LogEntry.objects.get().change_message == "Approved. seen the photo"


def test_a_declined_call_tells_the_model_why(browser: Client) -> None:
    turn = rows.asking()
    decide(browser, the_call(turn), "decline", reason="too much")
    assert the_call(turn).output_text == "Not run: a person declined this call. Reason: too much"


def test_an_answer_stands_for_the_tools_result(browser: Client) -> None:
    turn = rows.asking()
    decide(browser, the_call(turn), "answer", text="Ask for the receipt first.")
    call = the_call(turn)
    assert (call.status, call.approval, call.output_text) == ("completed", "answered", "Ask for the receipt first.")


def test_a_question_is_read_as_prose_and_answered_not_approved(browser: Client) -> None:
    question = rows.a_question("ask_person", arguments={"question": "Blue\nor red?"}, is_question=True)
    turn = rows.asking(question, park_reason="question")
    for page in (f"turn/{turn.pk}", f"toolcall/{the_call(turn).pk}"):
        html = browser.get(f"/admin/agentturns/{page}/change/").content.decode()
        assert "Blue<br>or red?" in html
        assert {name for name in DECISIONS if f'value="{name}"' in html} == {"answer", "decline"}
    decide(browser, the_call(turn), "answer", text="Blue.")
    assert the_call(turn).output_text == "Blue."


@pytest.mark.parametrize(
    ("make", "offered"),
    [
        (rows.asking, {"approve", "decline", "answer"}),
        (rows.in_doubt, {"rerun", "confirm", "decline"}),
    ],
)
def test_the_buttons_are_those_that_fit_the_call(browser: Client, make: Any, offered: set[str]) -> None:
    turn = make()
    for page in (f"turn/{turn.pk}", f"toolcall/{the_call(turn).pk}"):
        html = browser.get(f"/admin/agentturns/{page}/change/").content.decode()
        assert {name for name in DECISIONS if f'value="{name}"' in html} == offered


def four_eyes(user: User, call: ToolCall) -> bool | str:
    return "somebody else must look." if user.username == "olga" else True


@override_settings(AGENTTURNS={"MAY_DECIDE": f"{__name__}.four_eyes"})
def test_the_projects_own_rule_takes_the_buttons_away_and_says_why(browser: Client) -> None:
    turn = rows.asking()
    html = browser.get(f"/admin/agentturns/turn/{turn.pk}/change/").content.decode()
    assert "somebody else must look." in html
    assert "/decide/" not in html
    assert decide(browser, the_call(turn), "approve").status_code == 403
    other = browser_of(staff("otto", *VIEWS, "decide_toolcall"))
    assert "/decide/" in other.get(f"/admin/agentturns/turn/{turn.pk}/change/").content.decode()


def test_an_empty_answer_is_refused_with_a_sentence(browser: Client) -> None:
    turn = rows.asking()
    [message] = messages_of(decide(browser, the_call(turn), "answer", text="  "))
    assert message == "The answer is empty; write what the model should be told."
    assert the_call(turn).awaits_decision


def test_a_call_in_doubt_is_run_again(browser: Client) -> None:
    turn = rows.in_doubt()
    response = decide(browser, the_call(turn), "rerun")
    assert messages_of(response)[0].startswith("The call of send_email will run again.")
    assert the_call(turn).status == "pending"


@pytest.mark.parametrize(
    ("written", "stored", "told"),
    [
        ('{"sent": true, "id": 7}', {"sent": True, "id": 7}, '{"sent": true, "id": 7}'),
        ("sent at noon", "sent at noon", "sent at noon"),
        ("12", 12, "12"),
        ("NaN", "NaN", "NaN"),
        ("[" * 100_000, "[" * 100_000, None),
        ("", "", "(no output)"),
    ],
)
def test_a_call_in_doubt_is_confirmed_with_json_or_text(
    browser: Client, written: str, stored: Any, told: str | None
) -> None:
    turn = rows.in_doubt()
    decide(browser, the_call(turn), "confirm", result=written)
    call = the_call(turn)
    assert (call.status, call.result) == ("completed", stored)
    assert told is None or call.output_text == told


def test_a_number_too_large_for_json_is_refused_with_a_sentence(browser: Client) -> None:
    turn = rows.in_doubt()
    [message] = messages_of(decide(browser, the_call(turn), "confirm", result="1e999"))
    assert "JSON cannot hold" in message
    assert the_call(turn).status == "in_doubt"


def test_the_turn_goes_on_only_after_its_last_open_decision(browser: Client) -> None:
    turn = rows.asking(rows.a_question("first_tool"), rows.a_question("second_tool"))
    first, second = turn.tool_calls.order_by("position")
    [told] = messages_of(decide(browser, first, "approve"))
    assert told.startswith(f"The call of first_tool is approved. Turn {turn.pk} is parked.")
    assert "second_tool" in told
    decide(browser, second, "decline")
    turn.refresh_from_db()
    assert turn.status == "queued"


@pytest.mark.parametrize("decision", ["approve", "decline", "answer", "rerun", "confirm"])
def test_whoever_decides_second_is_told_who_was_first_and_changes_nothing(browser: Client, decision: str) -> None:
    turn = rows.asking()
    the_call(turn).approve(by=staff("anna", "decide_toolcall"))
    [message] = messages_of(decide(browser, the_call(turn), decision, text="x", result="x"))
    assert "already approved by anna at" in message
    assert (the_call(turn).approval, the_call(turn).decided_by_name) == ("approved", "anna")


@pytest.mark.parametrize(("make", "decision"), [(rows.asking, "rerun"), (rows.in_doubt, "approve")])
def test_a_decision_that_is_not_open_is_refused(browser: Client, make: Any, decision: str) -> None:
    turn = make()
    [message] = messages_of(decide(browser, the_call(turn), decision))
    assert "no decision is open on it" in message
    assert the_call(turn).awaits_decision


def test_a_decision_leads_back_to_where_it_was_taken(browser: Client) -> None:
    first, second = rows.asking(), rows.asking()
    from_turn = decide(browser, the_call(first), "approve", back="turn")
    from_call = decide(browser, the_call(second), "approve", back="call")
    assert from_turn.redirect_chain == [(f"/admin/agentturns/turn/{first.pk}/change/", 302)]
    assert from_call.redirect_chain == [(f"/admin/agentturns/toolcall/{the_call(second).pk}/change/", 302)]


def test_who_sees_only_one_of_the_two_pages_is_led_there(db: None) -> None:
    turn, call = rows.asking(), rows.asking()
    to_turn = decide(browser_of(staff("a", "view_turn", "decide_toolcall")), the_call(turn), "approve", back="call")
    to_call = decide(browser_of(staff("b", "view_toolcall", "decide_toolcall")), the_call(call), "approve", back="turn")
    assert to_turn.status_code == to_call.status_code == 200
    assert "/turn/" in to_turn.redirect_chain[0][0]
    assert "/toolcall/" in to_call.redirect_chain[0][0]


@pytest.mark.parametrize("decision", ["", "delete", "__init__"])
def test_an_unknown_decision_is_a_bad_request(browser: Client, decision: str) -> None:
    call = the_call(rows.asking())
    assert browser.post(f"/admin/agentturns/toolcall/{call.pk}/decide/", {"decision": decision}).status_code == 400


def test_the_buttons_addresses_take_posts_only(browser: Client) -> None:
    turn = rows.asking()
    for url in (f"turn/{turn.pk}/cancel", f"turn/{turn.pk}/retry", f"toolcall/{the_call(turn).pk}/decide"):
        assert browser.get(f"/admin/agentturns/{url}/").status_code == 405
    turn.refresh_from_db()
    assert turn.status == "parked"


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("cancel_turn", "turn/{turn}/cancel"),
        ("retry_turn", "turn/{turn}/retry"),
        ("decide_toolcall", "toolcall/{call}/decide"),
    ],
)
def test_each_verb_takes_its_own_permission(db: None, verb: str, path: str) -> None:
    turn = rows.asking()
    url = f"/admin/agentturns/{path.format(turn=turn.pk, call=the_call(turn).pk)}/"
    others = [name for name in VERBS if name != verb]
    assert browser_of(staff("all-but-it", *VIEWS, *others)).post(url, {"decision": "approve"}).status_code == 403
    assert browser_of(staff("it-unseen", verb)).post(url, {"decision": "approve"}).status_code == 403
    assert Client().post(url, {"decision": "approve"}).status_code == 302
    turn.refresh_from_db()
    assert turn.status == "parked"
    assert browser_of(staff("it-alone", *VIEWS, verb)).post(url, {"decision": "approve"}).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_of_many_who_press_at_once_one_is_first_and_all_others_are_told(operator: User) -> None:
    turn = rows.over_cost()
    fields = {"max_cost": "0.50", "reason": "at once"}

    def press(browser: Client) -> str:
        try:
            return words(browser.post(f"/admin/agentturns/turn/{turn.pk}/raise/", fields, follow=True))
        finally:
            connections.close_all()

    browsers = [browser_of(operator) for _ in range(6)]
    with ThreadPoolExecutor(len(browsers)) as pool:
        pages = list(pool.map(press, browsers))
    assert sum("is raised and resumed" in page for page in pages) == 1
    assert sum("olga acted on it at" in page for page in pages) == 5
    assert BudgetChange.objects.count() == LogEntry.objects.count() == 1


def test_a_row_that_does_not_exist_is_told(browser: Client) -> None:
    for url in ("turn/987654/cancel", "toolcall/987654/decide"):
        response = browser.post(f"/admin/agentturns/{url}/", {"decision": "approve"}, follow=True)
        assert "doesn’t exist" in messages_of(response)[0]
