"""A message to a session of which a turn is not over: the table of policies and states, and what is never lost."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models.functions import Now

from agentturns import Agent, Conflict, Limits, Message, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.engine.transcript import Transcript
from agentturns.models.claims import claim
from agentturns.models.queueing import WAYS, Standing, Way
from agentturns.providers.base import Fault, ProviderError
from agentturns.providers.scripted import ScriptedModel, reply

pytestmark = pytest.mark.django_db(transaction=True)


@tool(effect="idempotent")
def look() -> str:
    """Look."""
    return "seen"


def looks(**options: Any) -> Any:
    return reply(tool_calls=[("look", {})], **options)


def agent(script: Any, policy: str = "followup", **options: Any) -> Agent:
    return Agent(
        name="tester", model=ScriptedModel(script), instructions="…", tools=[look], queue_policy=policy, **options
    )


def brought_to(standing: Standing, policy: str) -> Turn:
    """A first turn of a session that stands as asked."""
    match standing:
        case Standing.WAITING:
            tester = agent([ProviderError("busy", fault=Fault.TRANSIENT), reply("done")], policy)
        case _:
            tester = agent([looks(cost="0.3"), reply("done"), reply("then")], policy, limits=Limits(max_cost="0.2"))
    turn = tester.start("first")
    Turn.objects.update(run_after=None)
    match standing:
        case Standing.RUNNING:
            assert claim(turn.pk, "a worker")
        case Standing.WAITING | Standing.PARKED:
            run_turn(turn.pk)
    turn.refresh_from_db()
    return turn


@pytest.mark.parametrize("policy", list(WAYS))
@pytest.mark.parametrize("standing", list(Standing))
def test_each_cell_of_the_table(policy: str, standing: Standing) -> None:
    turn = brought_to(standing, policy)
    sent = turn.session.send("second")
    turn.refresh_from_db()
    match WAYS[policy][standing]:
        case Way.NEXT:
            assert (sent.index, sent.input, sent.status) == (2, "second", "queued")
            assert turn.cancel_requested_at is None
        case Way.MERGE:
            assert (sent.pk, sent.input) == (turn.pk, "first\n\nsecond")
            assert turn.session.turns.count() == 1
        case Way.STEER:
            assert (sent.pk, sent.input, turn.messages_waiting) == (turn.pk, "first", 1)
            assert turn.session.turns.count() == 1
        case Way.STOP:
            assert (sent.index, sent.input) == (2, "second")
            assert turn.cancel_requested_at is not None
            assert turn.status == ("running" if standing is Standing.RUNNING else "canceled")


def test_a_steering_message_enters_after_the_batch_that_was_running() -> None:
    def script(request: Any) -> Any:
        if len(request.messages) == 1:
            assert Turn.objects.get().session.send("and mind the cat").pk == Turn.objects.get().pk
            return reply(tool_calls=[("look", {}), ("look", {})])
        return reply("done")

    tester = agent(script, "steer")
    turn = run_turn(tester.start("go").pk)
    assert (turn.status, turn.messages_waiting) == ("completed", 0)
    sent = tester.model.requests[1].messages
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert sent[-1]["content"] == "and mind the cat"
    assert list(tester.model.requests[1]._messages) == Transcript(turn).messages
    assert [(told["role"], told["content"]) for told in turn.exchange] == [
        ("user", "go"),
        ("assistant", ""),
        ("tool", "seen"),
        ("tool", "seen"),
        ("user", "and mind the cat"),
        ("assistant", "done"),
    ]


def test_steering_is_worded_as_the_settings_say(settings: Any) -> None:
    settings.AGENTTURNS = {"STEER_WORDING": "The user adds: {message}"}
    turn = brought_to(Standing.PARKED, "steer")
    turn.session.send("hurry")
    turn = run_turn(turn.raise_budget(max_cost=1).pk)
    assert turn.status == "completed"
    assert Transcript(turn).messages[-1].notice == "The user adds: hurry"  # type: ignore[union-attr]


def test_a_message_that_arrives_after_the_last_boundary_becomes_a_turn_of_its_own() -> None:
    def script(request: Any) -> Any:
        if request.messages[-1]["content"] == "go":
            Turn.objects.get().session.send("one more thing")
            return reply("done")
        return reply("and that too")

    tester = agent(script, "steer")
    first = run_turn(tester.start("go").pk)
    assert (first.status, first.answer) == ("completed", "done")
    second = first.session.turns.get(index=2)
    assert (second.status, second.input) == ("queued", "one more thing")
    assert Message.objects.get().turn == second
    assert run_turn(second.pk).answer == "and that too"
    assert [message["content"] for message in tester.model.requests[-1].messages].count("one more thing") == 1


def test_a_halted_batch_takes_nothing_in() -> None:
    @tool(halts=True)
    def finish() -> str:
        """Finish."""
        Turn.objects.get().session.send("too late")
        return "over"

    model = ScriptedModel([reply(tool_calls=[("finish", {})])])
    tester = Agent(name="tester", model=model, instructions="…", tools=[finish], queue_policy="steer")
    first = run_turn(tester.start("go").pk)
    assert (first.status, first.answer) == ("completed", "over")
    assert first.session.turns.get(index=2).input == "too late"


def test_messages_of_a_canceled_turn_become_turns_in_their_order() -> None:
    turn = brought_to(Standing.PARKED, "steer")
    turn.session.send("a")
    turn.session.send("b")
    turn.refresh_from_db()
    turn.cancel()
    assert [(later.index, later.input, later.status) for later in turn.session.turns.filter(index__gt=1)] == [
        (2, "a", "queued"),
        (3, "b", "queued"),
    ]


def test_more_steering_than_allowed_queues_behind_and_nothing_overtakes_it(settings: Any) -> None:
    settings.AGENTTURNS = {"STEER_MAX": 1}
    turn = brought_to(Standing.PARKED, "steer")
    assert turn.session.send("a").pk == turn.pk
    assert turn.session.send("b").index == 2
    turn = run_turn(turn.raise_budget(max_cost=1).pk)
    assert turn.status == "completed"


def test_a_message_with_its_own_context_or_limits_is_a_turn_of_its_own() -> None:
    turn = brought_to(Standing.PARKED, "steer")
    assert turn.session.send("a", context={"order": 2}).index == 2
    assert turn.session.send("b", limits=Limits(max_cost=9)).index == 3


def test_the_same_key_takes_a_message_in_once() -> None:
    turn = brought_to(Standing.PARKED, "steer")
    for _ in range(3):
        assert turn.session.send("a", key="m-1").pk == turn.pk
    turn.refresh_from_db()
    assert (turn.messages_waiting, Message.objects.count()) == (1, 1)


def test_collected_messages_wait_for_more_but_not_past_the_ceiling(settings: Any) -> None:
    settings.AGENTTURNS = {"COLLECT_DEBOUNCE_SECONDS": 60, "COLLECT_CEILING_SECONDS": 90}
    tester = agent([reply("done")], "collect")
    turn = tester.start("a")
    assert (turn.session.send("b").pk, turn.session.send("c").pk) == (turn.pk, turn.pk)
    turn.refresh_from_db()
    assert turn.input == "a\n\nb\n\nc"
    assert not Turn.objects.runnable().exists()
    waits = turn.run_after - turn.created_at
    assert 55 < waits.total_seconds() <= 90
    Turn.objects.update(run_after=Now())
    assert run_turn(turn.pk).status == "completed"
    assert tester.model.requests[0].messages[0]["content"] == "a\n\nb\n\nc"


def test_an_interrupted_turn_stops_at_its_next_boundary_and_the_message_is_next() -> None:
    def script(request: Any) -> Any:
        if request.messages[-1]["content"] == "go":
            Turn.objects.get().session.send("stop, do this")
            return looks()
        return reply("this it is")

    tester = agent(script, "interrupt")
    first = run_turn(tester.start("go").pk)
    assert (first.status, first.error_message) == ("canceled", "Canceled: a newer message came in.")
    second = run_turn(first.session.turns.get(index=2).pk)
    assert (second.status, second.answer) == ("completed", "this it is")


def test_the_sessions_policy_goes_before_the_agents() -> None:
    turn = brought_to(Standing.PARKED, "steer")
    session = turn.session
    session.queue_policy = "followup"
    session.save()
    follower = session.send("a", context={"own": True})
    assert (turn.queue_policy, follower.queue_policy) == ("steer", "followup")


def test_a_retry_is_refused_once_the_conversation_has_gone_on() -> None:
    tester = agent([reply("x", stop_reason="max_tokens"), reply("fine")])
    first = run_turn(tester.start("go").pk)
    assert first.status == "failed"
    run_turn(first.session.send("again").pk)
    with pytest.raises(Conflict, match="has been taken up since"):
        first.retry()
