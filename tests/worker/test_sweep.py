"""The sweep: what it rings for, how seldom it runs, and what it does with approvals that nobody gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from agentturns import Agent, Conflict, ToolCall, Turn, ask_person, tool
from agentturns.models import SweepMark
from agentturns.models.clock import database_now
from agentturns.signals import tool_call_decided, turn_parked
from agentturns.testing import ScriptedModel, reply
from agentturns.worker import tasks
from agentturns.worker.sweep import MOST_BELLS, expire_approvals, ring_for_runnable, sweep_if_due
from tests.rivals import at_once
from tests.worker.pumps import abandon, answering, bells, silence, statuses

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def heard(signal: Any) -> Iterator[list[dict[str, Any]]]:
    """What is sent on ``signal`` inside the block."""
    sent: list[dict[str, Any]] = []

    def receive(sender: Any, signal: Any, **fields: Any) -> None:
        sent.append(fields)

    signal.connect(receive)
    try:
        yield sent
    finally:
        signal.disconnect(receive)


# -- bells ----------------------------------------------------------------------------------------------------------


def test_a_sweep_rings_for_dead_workers_turns_for_lost_bells_and_for_waits_that_have_passed() -> None:
    agent = answering()
    dead, lost, waited, waiting, parked = (agent.start(str(number)) for number in range(5))
    abandon(dead)
    Turn.objects.filter(pk=waited.pk).update(run_after=database_now() - timedelta(seconds=1))
    Turn.objects.filter(pk=waiting.pk).update(run_after=database_now() + timedelta(hours=1))
    Turn.objects.filter(pk=parked.pk).update(status="parked", park_reason="max_cost")
    silence()
    assert sweep_if_due()
    assert bells() == [dead.pk, lost.pk, waited.pk]


def test_a_sweep_does_not_ring_for_a_turn_behind_another_of_its_session() -> None:
    first = answering().start("one")
    first.session.send("two")
    silence()
    sweep_if_due()
    assert bells() == [first.pk]


def test_a_sweep_of_a_long_queue_rings_a_few_times() -> None:
    agent = answering()
    for number in range(MOST_BELLS + 5):
        agent.start(str(number))
    silence()
    assert ring_for_runnable() == MOST_BELLS
    assert len(bells()) == MOST_BELLS


def test_a_sweep_happens_once_in_its_interval(settings: Settings) -> None:
    settings.AGENTTURNS = {"SWEEP_SECONDS": 30}
    assert [sweep_if_due(), sweep_if_due()] == [True, False]
    SweepMark.objects.update(swept_at=database_now() - timedelta(seconds=31))
    assert [sweep_if_due(), sweep_if_due()] == [True, False]


@pytest.mark.parametrize("marked_before", [False, True], ids=["the first ever", "a later one"])
def test_workers_that_come_at_the_same_moment_sweep_once(marked_before: bool) -> None:
    for _ in range(5):
        SweepMark.objects.all().delete()
        if marked_before:
            SweepMark.objects.create(name="turns", swept_at=timezone.now() - timedelta(hours=1))
        assert sorted(at_once(*[sweep_if_due] * 8)) == [False] * 7 + [True]


def test_the_scheduled_sweep_runs_turns_whose_bell_was_lost() -> None:
    turn = answering().start("go")
    silence()
    tasks.sweep()
    assert statuses(turn) == ["completed"]


# -- approvals ------------------------------------------------------------------------------------------------------


@tool(approval="always")
def pay(amount: int) -> str:
    """Pay."""
    return "paid"


@pytest.fixture
def asking(run_turns: Callable[..., list[Turn]]) -> tuple[Turn, ScriptedModel]:
    """A turn parked on two approvals, which expire in a week."""
    model = ScriptedModel([reply(tool_calls=[("pay", {"amount": 1}), ("pay", {"amount": 2})]), "done"])
    turn = Agent(name="tester", model=model, instructions="…", tools=[pay]).start("go")
    run_turns()
    turn.refresh_from_db()
    assert (turn.status, turn.park_reason) == ("parked", "approval")
    return turn, model


def let_pass(*calls: ToolCall, seconds: float = 7 * 24 * 3600 + 1) -> None:
    """As if the calls had been asked about so long ago."""
    for call in calls:
        ToolCall.objects.filter(pk=call.pk).update(
            gated_at=call.gated_at - timedelta(seconds=seconds), expires_at=call.expires_at - timedelta(seconds=seconds)
        )


def test_an_approval_nobody_gave_in_time_declines_the_call_and_leaves_the_turn_to_a_person(
    asking: tuple[Turn, ScriptedModel], run_turns: Callable[..., list[Turn]]
) -> None:
    turn, model = asking
    let_pass(*turn.tool_calls.all())
    silence()
    assert expire_approvals() == 2
    turn.refresh_from_db()
    assert (turn.status, turn.park_reason, bells()) == ("parked", "approval_expired", [])
    calls = turn.tool_calls.all()
    assert {(call.status, call.approval) for call in calls} == {("refused", "expired")}
    assert {call.output_text for call in calls} == {"Not run: nobody approved this call within 7 days."}
    turn.retry()
    run_turns()
    turn.refresh_from_db()
    assert (turn.status, len(model.requests)) == ("completed", 2)
    told = [message["content"] for message in model.requests[1].messages if message["role"] == "tool"]
    assert told == ["Not run: nobody approved this call within 7 days."] * 2


def test_a_question_nobody_answered_is_told_as_such(run_turns: Callable[..., list[Turn]]) -> None:
    model = ScriptedModel([reply(tool_calls=[("ask_person", {"question": "Which?"})]), "done"])
    turn = Agent(name="tester", model=model, instructions="…", tools=[ask_person]).start("go")
    run_turns()
    let_pass(turn.tool_calls.get())
    expire_approvals()
    assert turn.tool_calls.get().output_text == "Not answered: nobody answered this question within 7 days."


def test_while_another_decision_is_open_the_turn_goes_on_waiting_for_it(
    asking: tuple[Turn, ScriptedModel], run_turns: Callable[..., list[Turn]]
) -> None:
    turn, _ = asking
    first, second = turn.tool_calls.order_by("position")
    let_pass(first)
    assert expire_approvals() == 1
    turn.refresh_from_db()
    assert (turn.status, turn.park_reason) == ("parked", "approval")
    second.approve()
    run_turns()
    turn.refresh_from_db()
    assert turn.status == "completed"
    assert [call.status for call in turn.tool_calls.order_by("position")] == ["refused", "completed"]


def test_an_approval_in_time_is_left_alone(asking: tuple[Turn, ScriptedModel]) -> None:
    turn, _ = asking
    let_pass(*turn.tool_calls.all(), seconds=7 * 24 * 3600 - 60)
    assert expire_approvals() == 0
    assert turn.tool_calls.awaiting_decision().count() == 2


def test_an_expired_call_cannot_be_approved_any_more(asking: tuple[Turn, ScriptedModel]) -> None:
    turn, _ = asking
    call = turn.tool_calls.first()
    let_pass(call)
    expire_approvals()
    with pytest.raises(Conflict, match="already expired"):
        call.approve()


def test_an_approval_and_its_expiry_at_the_same_moment_take_one_way(asking: tuple[Turn, ScriptedModel]) -> None:
    turn, _ = asking
    first = turn.tool_calls.order_by("position").first()
    let_pass(first)
    expired, approved = at_once(expire_approvals, first.approve)
    first.refresh_from_db()
    if isinstance(approved, Conflict):
        assert (expired, first.status, first.approval) == (1, "refused", "expired")
    else:
        assert (expired, first.status, first.approval) == (0, "pending", "approved")


def test_an_expiry_is_signalled_for_the_call_and_for_the_turn(asking: tuple[Turn, ScriptedModel]) -> None:
    turn, _ = asking
    let_pass(*turn.tool_calls.all())
    with heard(tool_call_decided) as decided, heard(turn_parked) as parked:
        expire_approvals()
    assert [fields["decision"] for fields in decided] == ["expired", "expired"]
    assert [(fields["turn"].pk, fields["turn"].park_reason) for fields in parked] == [(turn.pk, "approval_expired")]


def test_a_canceled_turns_approvals_do_not_expire(asking: tuple[Turn, ScriptedModel]) -> None:
    turn, _ = asking
    calls = list(turn.tool_calls.all())
    turn.cancel()
    let_pass(*calls)
    assert expire_approvals() == 0
