"""What each decision on an approval does to its call, and what the model then reads, word for word."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from agentturns import Agent, Conflict, ToolCall, Turn, get_agent, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply
from agentturns.worker.sweep import expire_approvals
from tests.engine.deciding import asks, note, parked, resumed, runs, start, told
from tests.people import user_who_may

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nothing_ran_yet() -> None:
    runs.clear()
    resumed.clear()


def test_an_approved_call_is_run_itself_without_asking_the_model_again() -> None:
    turn, call, model = parked(("pay", "A"))
    call.approve(by=user_who_may("decide_toolcall"), note="looks right")
    assert (call.status, call.approval, call.note, call.decided_by_name) == (
        "pending",
        "approved",
        "looks right",
        "ann",
    )
    assert timezone.now() - call.decided_at < timedelta(minutes=1)
    assert (len(model.requests), runs) == (1, [])
    assert run_turn(turn.pk).answer == "done"
    assert (runs, told(model)) == (["A"], [("did A", False)])


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("", "Not run: a person declined this call."),
        ("too much\x00", "Not run: a person declined this call. Reason: too much\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_a_declined_call_is_not_run_and_the_model_reads_the_reason(reason: str, text: str) -> None:
    turn, call, model = parked(("pay", "A"))
    call.decline(reason=reason)
    assert (call.status, call.approval, call.output_text) == ("refused", "declined", text)
    assert run_turn(turn.pk).answer == "done"
    assert (runs, told(model)) == ([], [(text, True)])


def test_an_answer_is_what_the_model_gets_instead_of_a_run() -> None:
    turn, call, model = parked(("pay", "A"))
    call.answer("It was paid by hand.")
    assert (call.status, call.approval, call.result) == ("completed", "answered", "It was paid by hand.")
    assert run_turn(turn.pk).answer == "done"
    assert (runs, told(model)) == ([], [("It was paid by hand.", False)])


@pytest.mark.parametrize("text", ["", " \n", None])
def test_an_empty_answer_is_refused_and_nothing_is_decided(text: Any) -> None:
    _, call, _ = parked(("pay", "A"))
    with pytest.raises(ValueError, match=r"The answer is empty; write what the model should be told\."):
        call.answer(text)
    call.refresh_from_db()
    assert call.awaits_decision


def test_the_results_of_a_batch_reach_the_model_together_and_in_its_order() -> None:
    turn, _, model = parked(("pay", "A"), ("note", "B"), ("pay", "C"), ("note", "D"))
    assert runs == ["B", "D"]
    assert turn.waiting_for == "A person must approve or decline 2 calls (pay)."
    first, last = ToolCall.objects.awaiting_decision()
    last.approve()
    turn.refresh_from_db()
    assert (turn.status, turn.park_reason, len(model.requests)) == ("parked", "approval", 1)
    first.decline()
    assert run_turn(turn.pk).status == "completed"
    assert runs == ["B", "D", "C"]
    assert told(model) == [
        ("Not run: a person declined this call.", True),
        ("did B", False),
        ("did C", False),
        ("did D", False),
    ]


def test_an_approved_call_whose_tool_is_gone_gives_the_model_an_error_result() -> None:
    turn, call, model = parked(("pay", "A"))
    agent = get_agent("tester")
    agent.tools = (note,)
    call.approve()
    assert run_turn(turn.pk).status == "completed"
    assert (runs, told(model)) == ([], [("Not run: there is no tool named 'pay'. The tools are: note.", True)])


def test_what_was_approved_is_what_runs_though_a_default_changed_meanwhile() -> None:
    amounts: list[int] = []

    @tool(effect="idempotent", approval="always")
    def refund(order: str, pence: int = 500) -> str:
        """Refund."""
        amounts.append(pence)
        return ""

    @tool(effect="idempotent", approval="always", name="refund")
    def refund_after_deploy(order: str, pence: int = 50_000) -> str:
        """Refund."""
        amounts.append(pence)
        return ""

    model = ScriptedModel([reply(tool_calls=[("refund", {"order": "A"})]), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[refund])
    turn = run_turn(agent.start("go").pk)
    call = turn.tool_calls.get()
    assert call.arguments == {"order": "A", "pence": 500}
    call.approve()
    agent.tools = (refund_after_deploy,)
    assert run_turn(turn.pk).status == "completed"
    assert amounts == [500]


def test_a_second_decision_is_a_conflict_that_names_the_first() -> None:
    _, call, _ = parked(("pay", "A"))
    call.approve(by=user_who_may("decide_toolcall"))
    for again in (call.approve, call.decline, lambda: call.answer("text"), call.rerun, lambda: call.confirm("text")):
        with pytest.raises(Conflict) as late:
            again()
        assert (late.value.status, late.value.by, late.value.at) == ("approved", "ann", call.decided_at)
        assert str(late.value) == (
            f"The call of pay was already approved by ann at {call.decided_at:%Y-%m-%d %H:%M:%S}; nothing was changed."
        )


def test_a_call_that_asks_nobody_takes_no_decision() -> None:
    turn, _ = start(asks(("note", "A")))
    call = run_turn(turn.pk).tool_calls.get()
    with pytest.raises(Conflict) as late:
        call.approve()
    assert str(late.value) == (
        f"The call of note is completed and turn {turn.pk} is completed; no decision is open on it."
    )


def test_a_decision_asks_for_its_permission_and_is_logged_on_the_call() -> None:
    _, call, _ = parked(("pay", "A"))
    with pytest.raises(PermissionDenied) as refused:
        call.approve(by=user_who_may("raise_budget", name="bob"))
    assert str(refused.value) == "bob may not decide a tool call; it takes the permission agentturns.decide_toolcall."
    call.refresh_from_db()
    assert call.awaits_decision
    call.approve(by=user_who_may("decide_toolcall"))
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.content_type.model, entry.object_id) == ("ann", "toolcall", str(call.pk))
    assert entry.change_message.startswith("Approved.")


def test_the_last_decision_starts_a_fresh_stretch() -> None:
    turn, call, _ = parked(("pay", "A"))
    Turn.objects.filter(pk=turn.pk).update(stretch_seconds=500)
    call.approve()
    turn.refresh_from_db()
    assert (turn.status, turn.stretch_seconds) == ("queued", 0)


def test_an_approval_that_expired_counts_as_declined_and_a_retry_goes_on_with_that() -> None:
    turn, call, model = parked(("pay", "A"))
    assert expire_approvals() == 0
    ToolCall.objects.filter(pk=call.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert expire_approvals() == 1
    turn.refresh_from_db()
    call.refresh_from_db()
    assert (turn.status, turn.park_reason) == ("parked", "approval_expired")
    assert (call.status, call.approval) == ("refused", "expired")
    assert turn.waiting_for == (
        "Nobody decided a tool call in time, so it counts as declined; retry to go on with that."
    )
    with pytest.raises(Conflict, match="The call of pay was already expired at "):
        call.approve()
    assert run_turn(turn.retry().pk).status == "completed"
    assert (runs, len(told(model)), told(model)[0][1]) == ([], 1, True)
    assert told(model)[0][0].startswith("Not run: nobody approved this call within ")
