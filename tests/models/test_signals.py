"""Signals: after the commit, once, with what they promise; a receiver that raises changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.dispatch import Signal

from agentturns import Agent, Limits, Turn, signals, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply

pytestmark = pytest.mark.django_db(transaction=True)

ALL = {name: value for name, value in vars(signals).items() if isinstance(value, Signal)}


@tool(effect="idempotent", approval=lambda request: request.arguments["text"] == "ask")
def note(text: str) -> str:
    """Note a text."""
    return text


def asks(*texts: str, **options: Any) -> Any:
    return reply(tool_calls=[("note", {"text": text}) for text in texts], **options)


def turn_of(*script: Any, **limits: Any) -> Turn:
    model = ScriptedModel(list(script))
    return Agent(name="tester", model=model, instructions="…", tools=[note], limits=Limits(**limits)).start("go")


@contextmanager
def heard() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Every signal sent in the block, by name, with its fields."""
    sent: list[tuple[str, dict[str, Any]]] = []
    receivers = []
    for name, signal in ALL.items():

        def receive(signal: Signal, sender: Any, name: str = name, **fields: Any) -> None:
            assert sender is Turn
            assert not connection.in_atomic_block
            sent.append((name, fields))

        receivers.append((signal, receive))
        signal.connect(receive)
    try:
        yield sent
    finally:
        for signal, receive in receivers:
            signal.disconnect(receive)


def test_a_turn_that_parks_twice_is_heard_once_at_each_station() -> None:
    turn = turn_of(asks("ask"), asks("b", cost="2"), reply("done"), max_cost=1)
    with heard() as sent:
        turn = run_turn(turn.pk)
        turn.tool_calls.get().approve()
        turn = run_turn(turn.pk)
        turn.raise_budget(max_cost=5, reason="go on")
        run_turn(turn.pk)
    assert [name for name, _ in sent] == [
        "turn_started",
        "step_finished",
        "turn_parked",
        "tool_call_decided",
        "turn_resumed",
        "step_finished",
        "turn_parked",
        "budget_raised",
        "turn_resumed",
        "step_finished",
        "turn_finished",
    ]
    assert {fields["turn"].pk for _, fields in sent} == {turn.pk}
    fields_of = dict(sent)
    assert fields_of["budget_raised"]["changes"] == {"max_cost": (Decimal(1), Decimal(5))}
    assert fields_of["budget_raised"]["by"] is None
    assert fields_of["tool_call_decided"]["decision"] == "approved"
    assert fields_of["tool_call_decided"]["tool_call"].arguments == {"text": "ask"}
    assert fields_of["step_finished"]["step"].index == 3
    assert fields_of["turn_parked"]["turn"].park_reason == "max_cost"


def test_a_receiver_finds_the_committed_rows() -> None:
    found: list[tuple[str, str]] = []

    def look(turn: Turn, **_: Any) -> None:
        found.append((turn.status, Turn.objects.get(pk=turn.pk).status))

    watched = (signals.turn_started, signals.turn_parked, signals.turn_resumed, signals.turn_finished)
    for signal in watched:
        signal.connect(look)
    turn = run_turn(turn_of(asks("a", cost="2"), reply("done"), max_cost=1).pk)
    run_turn(turn.raise_budget(max_cost=5).pk)
    for signal in watched:
        signal.disconnect(look)
    assert found == [(status, status) for status in ("running", "parked", "queued", "completed")]


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_receiver_that_raises_changes_nothing_and_is_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def break_down(**_: Any) -> None:
        calls.append(1)
        raise RuntimeError("a receiver broke down")

    ALL[name].connect(break_down)
    turn = run_turn(turn_of(asks("ask", *"bcd"), asks("e", cost="2"), reply("done"), max_cost=1, max_tool_calls=7).pk)
    turn.tool_calls.filter(approval="required").get().approve()
    turn = run_turn(turn.pk)
    turn = run_turn(turn.raise_budget(max_cost=5).pk)
    ALL[name].disconnect(break_down)
    assert calls
    assert (turn.status, turn.answer, turn.step_count) == ("completed", "done", 3)
    assert "a receiver broke down" in caplog.text


def test_a_resume_that_is_rolled_back_is_not_heard() -> None:
    turn = run_turn(turn_of(asks("a", cost="2"), reply("done"), max_cost=1).pk)
    with heard() as sent:
        with pytest.raises(RuntimeError), transaction.atomic():
            turn.raise_budget(max_cost=5)
            raise RuntimeError
        assert sent == []


def test_a_warning_carries_the_threshold_and_the_cap() -> None:
    turn = turn_of(asks(*"abcd"), reply("done"), max_tool_calls=6)
    with heard() as sent:
        run_turn(turn.pk)
    (fields,) = [fields for name, fields in sent if name == "tool_budget_warned"]
    assert (fields["remaining"], fields["max"]) == (2, 6)
