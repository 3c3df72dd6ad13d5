"""Calls that a dead worker left: run again or in doubt, by their effect; and what each way out of a doubt does."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from agentturns import Conflict, ToolCall
from agentturns.definitions.agent import _registry
from agentturns.engine.runner import run_turn
from tests.engine.deciding import asks, doubtful, parked, resumed, runs, start, told
from tests.lost_workers import run_until_death
from tests.people import user_who_may

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nothing_ran_yet() -> None:
    runs.clear()
    resumed.clear()


def test_a_call_that_a_dead_worker_began_is_in_doubt_and_not_run_again() -> None:
    turn, call, model = doubtful(("note", "A"), ("send", "boom"), ("note", "C"))
    assert turn.waiting_for == (
        "A crash left it unknown whether the call of send happened: look, then rerun it or confirm its result."
    )
    assert [one.status for one in turn.tool_calls.order_by("position")] == ["completed", "in_doubt", "completed"]
    assert (runs, len(model.requests)) == (["A", "boom", "C"], 1)
    assert resumed == [False, True]
    assert list(ToolCall.objects.awaiting_decision()) == [call]


def test_an_idempotent_call_of_a_dead_worker_is_run_again_and_nobody_is_asked() -> None:
    turn, model = start(asks(("note", "A"), ("note", "boom")))
    turn = run_turn(run_until_death(turn).pk)
    assert (turn.status, turn.attempt, runs) == ("completed", 2, ["A", "boom", "boom"])
    assert told(model) == [("did A", False), ("did boom", False)]
    assert resumed == [False, False, True]


def test_a_rerun_runs_the_call_once_more() -> None:
    turn, call, model = doubtful(("send", "boom"))
    call.rerun(by=user_who_may("decide_toolcall"))
    assert (call.status, call.decided_by_name, call.run_token) == ("pending", "ann", "")
    assert run_turn(turn.pk).status == "completed"
    assert (runs, told(model)) == (["boom", "boom"], [("did boom", False)])


def test_a_rerun_of_an_approved_call_asks_no_second_approval() -> None:
    turn, call, _ = parked(("wire", "boom"))
    call.approve()
    turn = run_turn(run_until_death(turn).pk)
    assert turn.park_reason == "in_doubt"
    turn.tool_calls.get().rerun()
    assert run_turn(turn.pk).status == "completed"
    assert runs == ["boom", "boom"]


def test_a_call_that_dies_again_after_its_rerun_is_in_doubt_again() -> None:
    turn, call, _ = doubtful(("send", "boom"))
    call.rerun()
    runs.clear()
    turn = run_turn(run_until_death(turn).pk)
    assert turn.park_reason == "in_doubt"
    assert turn.tool_calls.get().confirm("sent").status == "completed"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("sent as no. 7", "sent as no. 7"),
        ({"number": 7, "to": "Zoë"}, '{"number": 7, "to": "Zoë"}'),
        (None, "null"),
        ("", "(no output)"),
        (" ", "(no output)"),
        ("a\x00b", "a\N{REPLACEMENT CHARACTER}b"),
    ],
)
def test_a_confirmed_call_reads_as_if_the_tool_had_returned_it(result: Any, text: str) -> None:
    turn, call, model = doubtful(("send", "boom"))
    call.confirm(result)
    assert (call.status, call.output_text) == ("completed", text)
    assert run_turn(turn.pk).status == "completed"
    assert (runs, told(model)) == (["boom"], [(text, False)])


def test_a_long_confirmation_or_answer_is_cut_with_a_visible_mark(settings: Any) -> None:
    settings.AGENTTURNS = {"MAX_RESULT_CHARS": 10}
    cut = "x" * 10 + "\n[cut here: 10 of 30 characters shown]"
    _, call, _ = doubtful(("send", "boom"), ("pay", "A"))
    assert call.confirm("x" * 30).output_text == cut
    assert ToolCall.objects.awaiting_decision().get().answer("x" * 30).output_text == cut


def test_a_result_that_is_not_json_cannot_be_confirmed() -> None:
    _, call, _ = doubtful(("send", "boom"))
    with pytest.raises(TypeError, match=r"result\['at'\] is of type datetime, which is not JSON"):
        call.confirm({"at": timezone.now()})
    call.refresh_from_db()
    assert call.status == "in_doubt"


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("", "Outcome unknown: a crash interrupted this call and it was not run again."),
        (
            "nobody knows",
            "Outcome unknown: a crash interrupted this call and it was not run again. Reason: nobody knows",
        ),
    ],
)
def test_a_doubt_may_be_left_as_it_is(reason: str, text: str) -> None:
    turn, call, model = doubtful(("send", "boom"))
    call.decline(reason=reason)
    assert (call.status, call.approval) == ("failed", "declined")
    assert run_turn(turn.pk).status == "completed"
    assert (runs, told(model)) == (["boom"], [(text, True)])


def test_a_doubt_is_neither_approved_nor_answered_and_an_approval_neither_rerun_nor_confirmed() -> None:
    turn, _, _ = doubtful(("send", "boom"), ("pay", "B"))
    assert turn.waiting_for == (
        "A crash left it unknown whether the call of send happened: look, then rerun it or confirm its result; a "
        "person must approve or decline the call of pay."
    )
    doubt, question = ToolCall.objects.awaiting_decision()
    for wrong in (doubt.approve, lambda: doubt.answer("text"), question.rerun, lambda: question.confirm("text")):
        with pytest.raises(Conflict, match=f"and turn {turn.pk} is parked; no decision is open on it"):
            wrong()
    question.approve()
    turn.refresh_from_db()
    assert turn.status == "parked"
    doubt.confirm("sent")
    assert run_turn(turn.pk).status == "completed"
    assert runs == ["boom", "B"]


def test_a_turn_taken_over_where_its_agent_is_not_declared_parks_and_keeps_its_open_call() -> None:
    turn, model = start(asks(("send", "boom")))
    run_until_death(turn)
    agent = _registry.pop("tester")
    turn = run_turn(turn.pk)
    assert (turn.park_reason, turn.tool_calls.get().status) == ("agent_missing", "started")
    _registry["tester"] = agent
    turn = run_turn(turn.retry().pk)
    assert (turn.park_reason, runs, len(model.requests)) == ("in_doubt", ["boom"], 1)
    turn.tool_calls.get().confirm("sent")
    assert run_turn(turn.pk).status == "completed"


def test_every_claim_but_the_first_is_a_resume() -> None:
    turn, _ = start(asks(("note", "A"), ("pay", "B")), asks(("note", "C")))
    turn = run_turn(turn.pk)
    ToolCall.objects.awaiting_decision().get().approve()
    assert run_turn(turn.pk).status == "completed"
    assert resumed == [False, True]
