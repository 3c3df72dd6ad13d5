"""People who decide at the same moment, or while a worker still runs the batch: one resume, nobody left waiting."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections

from agentturns import Agent, Conflict, ToolCall, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply
from agentturns.signals import tool_call_decided, turn_resumed
from tests.models.conftest import Bells
from tests.people import user_who_may
from tests.rivals import at_once

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 20


@tool(effect="idempotent", approval="always")
def pay(order: str) -> str:
    """Pay."""
    return f"paid {order}"


@tool(effect="at_most_once")
def send(order: str) -> str:
    """Send."""
    return f"sent {order}"


def waiting_for_two(name: str = "tester") -> tuple[Turn, ToolCall, ToolCall]:
    """A turn parked on two approvals; its model answers next."""
    model = ScriptedModel([reply(tool_calls=[("pay", {"order": "A"}), ("pay", {"order": "B"})]), reply("done")])
    turn = run_turn(Agent(name=name, model=model, instructions="…", tools=[pay, send]).start("go").pk)
    assert turn.park_reason == "approval"
    first, second = turn.tool_calls.order_by("position")
    return turn, first, second


def test_two_decisions_at_once_resume_once(bells: Bells) -> None:
    resumed: list[int] = []

    def note_resume(turn: Turn, **_: Any) -> None:
        resumed.append(turn.pk)

    turn_resumed.connect(note_resume)
    turns = []
    for number in range(ROUNDS):
        turn, first, second = waiting_for_two(f"tester {number}")
        bells.clear()
        outcomes = at_once(first.approve, partial(second.decline, reason="no"))
        assert [type(outcome) for outcome in outcomes] == [ToolCall, ToolCall]
        assert bells.rung_for() == [turn.pk]
        turns.append(turn.pk)
    turn_resumed.disconnect(note_resume)
    assert resumed == turns
    assert Turn.objects.queued().count() == ROUNDS
    for pk in turns:
        turn = run_turn(pk)
        assert turn.status == "completed"
        assert [call.status for call in turn.tool_calls.order_by("position")] == ["completed", "refused"]


def test_of_two_who_decide_one_call_the_second_learns_who_was_first() -> None:
    users = [user_who_may("decide_toolcall", name=name) for name in ("ann", "bob")]
    for number in range(ROUNDS):
        turn, call, _ = waiting_for_two(f"tester {number}")
        rivals = [ToolCall.objects.get(pk=call.pk) for _ in users]
        outcomes = at_once(partial(rivals[0].approve, by=users[0]), partial(rivals[1].decline, by=users[1]))
        winner = _winner(users, outcomes)
        (lost,) = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
        call.refresh_from_db()
        assert (lost.by, lost.at, lost.status) == (winner.username, call.decided_at, call.approval)
        assert call.decided_by == winner
        turn.refresh_from_db()
        assert (turn.status, turn.park_reason) == ("parked", "approval")


def _winner(users: list[User], outcomes: list[Any]) -> User:
    (won,) = [user for user, outcome in zip(users, outcomes, strict=True) if isinstance(outcome, ToolCall)]
    return won


def test_a_cancel_and_a_last_decision_at_once_leave_no_turn_in_between() -> None:
    for number in range(ROUNDS):
        turn, first, second = waiting_for_two(f"tester {number}")
        second.approve()
        at_once(first.approve, Turn.objects.get(pk=turn.pk).cancel)
        turn.refresh_from_db()
        assert turn.status == "canceled"
        assert not turn.tool_calls.filter(status__in=["pending", "started", "in_doubt"]).exists()
        assert turn.session.active_turn is None


@pytest.mark.parametrize(
    ("decide", "outcome"),
    [
        (ToolCall.approve, ("completed", "paid A")),
        (ToolCall.decline, ("refused", "Not run: a person declined this call.")),
        (partial(ToolCall.answer, text="It is paid."), ("completed", "It is paid.")),
    ],
)
def test_a_decision_taken_while_a_sibling_still_runs_lets_the_turn_go_on_without_parking(
    decide: Any, outcome: tuple[str, str]
) -> None:
    under_way, decided = threading.Event(), threading.Event()

    @tool(effect="idempotent")
    def slow() -> str:
        """Slow."""
        under_way.set()
        assert decided.wait(30)
        return "slept"

    model = ScriptedModel([reply(tool_calls=[("pay", {"order": "A"}), ("slow", {})]), reply("done")])
    turn = Agent(name="tester", model=model, instructions="…", tools=[pay, slow]).start("go")

    def decide_meanwhile() -> None:
        assert under_way.wait(30)
        decide(ToolCall.objects.get(turn=turn, name="pay"))
        decided.set()
        connections.close_all()

    person = threading.Thread(target=decide_meanwhile)
    person.start()
    turn = run_turn(turn.pk)
    person.join(30)
    assert (turn.status, turn.answer, turn.attempt) == ("completed", "done", 1)
    results = [message["content"] for message in model.requests[1].messages if message["role"] == "tool"]
    assert results == [outcome[1], "slept"]
    assert turn.tool_calls.get(name="pay").status == outcome[0]


def test_one_of_two_decided_while_a_sibling_runs_parks_for_the_other_alone() -> None:
    @tool(effect="idempotent")
    def meanwhile() -> str:
        """Approve the first call from inside."""
        ToolCall.objects.filter(name="pay").order_by("position").first().approve()
        return "approved one"

    calls = [("pay", {"order": "A"}), ("pay", {"order": "B"}), ("meanwhile", {})]
    model = ScriptedModel([reply(tool_calls=calls), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[pay, meanwhile])
    turn = run_turn(agent.start("go").pk)
    assert (turn.status, turn.park_reason) == ("parked", "approval")
    assert [call.arguments for call in ToolCall.objects.awaiting_decision()] == [{"order": "B"}]
    ToolCall.objects.awaiting_decision().get().approve()
    assert run_turn(turn.pk).status == "completed"
    assert [message["content"] for message in model.requests[1].messages if message["role"] == "tool"] == [
        "paid A",
        "paid B",
        "approved one",
    ]


def test_no_turn_stays_parked_without_an_open_decision_however_the_moments_fall() -> None:
    for number in range(ROUNDS):
        model = ScriptedModel([reply(tool_calls=[("pay", {"order": "A"})]), reply("done")])
        turn = Agent(name=f"tester {number}", model=model, instructions="…", tools=[pay]).start("go")

        def approve_as_soon_as_asked(turn: Turn = turn) -> None:
            asked = ToolCall.objects.filter(turn=turn.pk).awaiting_decision()
            while (call := asked.first()) is None:
                pass
            call.approve()

        ran, approved = at_once(partial(run_turn, turn.pk), approve_as_soon_as_asked)
        assert not isinstance(ran, Exception), ran
        assert not isinstance(approved, Exception), approved
        turn.refresh_from_db()
        assert turn.status in ("queued", "completed")
        assert run_turn(turn.pk).status == "completed"
        assert len(model.requests) == 2


def test_each_decision_is_signalled_once_after_its_commit() -> None:
    heard: list[tuple[str, str, bool]] = []

    def note_decision(turn: Turn, tool_call: ToolCall, decision: str, **_: Any) -> None:
        committed = ToolCall.objects.get(pk=tool_call.pk).approval
        heard.append((decision, committed, connections["default"].in_atomic_block))

    tool_call_decided.connect(note_decision)
    _, first, second = waiting_for_two()
    first.approve()
    second.answer("Paid by hand.")
    tool_call_decided.disconnect(note_decision)
    assert heard == [("approved", "approved", False), ("answered", "answered", False)]
