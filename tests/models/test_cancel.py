"""Canceling a turn in each of its states: what becomes of its calls, its session, its answer."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from agentturns import Agent, Conflict, Limits, ToolCall, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.base import Fault, ProviderError
from agentturns.providers.scripted import ScriptedModel, reply
from agentturns.signals import turn_finished
from tests.lost_workers import Died, run_until_death
from tests.models.conftest import Bells
from tests.people import user_who_may
from tests.rivals import at_once

pytestmark = pytest.mark.django_db(transaction=True)

runs: list[str] = []


@pytest.fixture(autouse=True)
def no_runs() -> None:
    runs.clear()


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text; on "cancel" the turn is canceled meanwhile."""
    runs.append(text)
    if text == "cancel":
        Turn.objects.get(status="running").cancel(reason="stop it")
    return f"noted {text}"


@tool(approval="always")
def pay(order: str) -> str:
    """Pay."""
    runs.append(order)
    return "paid"


@tool(effect="at_most_once")
def send(order: str) -> str:
    """Send; the worker dies of it."""
    raise Died


def turn_of(*script: Any, **limits: Any) -> tuple[Turn, ScriptedModel]:
    model = ScriptedModel(list(script))
    agent = Agent(name="tester", model=model, instructions="…", tools=[note, pay, send], limits=Limits(**limits))
    return agent.start("go"), model


def asks(*names: str) -> Any:
    keys = {"note": "text", "pay": "order", "send": "order"}
    return reply(tool_calls=[(name, {keys[name]: "a"}) for name in names])


def fates(turn: Turn) -> list[tuple[str, str, str]]:
    return list(turn.tool_calls.order_by("position").values_list("status", "approval", "output_text"))


def test_a_queued_turn_ends_at_once_and_was_never_run() -> None:
    turn, model = turn_of(reply("never"))
    turn.cancel(reason="changed my mind")
    assert (turn.status, turn.error_code, turn.error_message) == ("canceled", "canceled", "Canceled: changed my mind.")
    assert turn.finished_at is not None
    assert run_turn(turn.pk).status == "canceled"
    assert model.requests == []


def test_a_turn_in_back_off_ends_at_once() -> None:
    turn, _ = turn_of(ProviderError("Overloaded.", fault=Fault.TRANSIENT), reply("never"))
    turn = run_turn(turn.pk)
    assert (turn.status, turn.run_after is None) == ("queued", False)
    turn.cancel()
    assert (turn.status, turn.run_after, turn.error_message) == ("canceled", None, "Canceled.")


def test_a_turn_parked_for_approval_ends_with_its_calls_declined() -> None:
    turn, _ = turn_of(asks("note", "pay", "pay"))
    turn = run_turn(turn.pk)
    turn.tool_calls.filter(position=1).get().approve()
    turn.cancel()
    assert fates(turn) == [
        ("completed", "", "noted a"),
        ("refused", "approved", "Not run: the turn ended (canceled)."),
        ("refused", "declined", "Not run: the turn ended (canceled)."),
    ]
    assert not ToolCall.objects.awaiting_decision().exists()
    assert runs == ["a"]


def test_a_turn_with_a_call_in_doubt_ends_saying_that_its_outcome_is_unknown() -> None:
    turn, _ = turn_of(asks("send"))
    turn = run_turn(run_until_death(turn).pk)
    assert turn.park_reason == "in_doubt"
    turn.cancel()
    assert fates(turn) == [("failed", "", "Outcome unknown: the turn ended (canceled).")]
    assert turn.status == "canceled"


def test_a_turn_parked_on_its_call_budget_ends_with_the_waiting_calls_not_run() -> None:
    turn, _ = turn_of(asks("note", "note"), max_tool_calls=1)
    turn = run_turn(turn.pk)
    turn.cancel()
    assert fates(turn) == [
        ("completed", "", "noted a"),
        ("refused", "", "Not run: the turn ended (canceled)."),
    ]
    assert (turn.status, turn.tool_calls_waiting, turn.park_reason) == ("canceled", 0, "")


def test_a_running_turn_ends_at_its_next_boundary_and_the_rest_of_its_batch_is_not_run() -> None:
    turn, model = turn_of(reply(tool_calls=[("note", {"text": text}) for text in ("a", "cancel", "c")]))
    turn = run_turn(turn.pk)
    assert (turn.status, turn.error_message) == ("canceled", "Canceled: stop it.")
    assert runs == ["a", "cancel"]
    assert fates(turn)[1:] == [
        ("completed", "", "noted cancel"),
        ("refused", "", "Not run: the turn ended (canceled)."),
    ]
    assert (turn.lease_owner, turn.session.active_turn, len(model.requests)) == ("", None, 1)


def test_an_answer_that_came_while_the_cancel_was_asked_for_is_kept() -> None:
    def speak(request: Any) -> Any:
        request.state.turn.__class__.objects.get().cancel()
        return reply("the answer", cost="0.10")

    agent = Agent(name="tester", model=ScriptedModel(speak), instructions="…")
    turn = run_turn(agent.start("go").pk)
    assert (turn.status, turn.answer, turn.step_count) == ("canceled", "the answer", 1)


def test_a_breach_found_while_a_cancel_is_asked_for_does_not_park() -> None:
    def speak(request: Any) -> Any:
        Turn.objects.get().cancel()
        return reply(tool_calls=[("note", {"text": "a"})], cost="5")

    agent = Agent(name="tester", model=ScriptedModel(speak), instructions="…", tools=[note], limits=Limits(max_cost=1))
    turn = run_turn(agent.start("go").pk)
    assert turn.status == "canceled"
    assert fates(turn)[0][0] in ("completed", "refused")


def test_a_turn_left_by_a_dead_worker_is_canceled_by_the_next_before_it_does_anything() -> None:
    def speak(request: Any) -> Any:
        raise Died

    model = ScriptedModel(speak)
    turn = run_until_death(Agent(name="tester", model=model, instructions="…").start("go"))
    turn.cancel()
    assert turn.status == "running"
    assert run_turn(turn.pk).status == "canceled"
    assert len(model.requests) == 1


@pytest.mark.parametrize("script", [[reply("done")], [reply("half", stop_reason="max_tokens")]])
def test_a_finished_turn_cannot_be_canceled(script: list[Any]) -> None:
    turn, _ = turn_of(*script)
    turn = run_turn(turn.pk)
    with pytest.raises(
        Conflict, match=f"Turn {turn.pk} is {turn.status} and is over or being canceled already"
    ) as lost:
        turn.cancel()
    assert lost.value.status == turn.status


def test_of_several_who_cancel_one_wins_and_the_others_learn_who() -> None:
    turn, _ = turn_of(reply("never"))
    users = [user_who_may("cancel_turn", name=name) for name in ("ann", "bob", "cy")]
    outcomes = at_once(*(partial(Turn.objects.get(pk=turn.pk).cancel, by=user) for user in users))
    turn.refresh_from_db()
    lost = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
    assert len(lost) == 2
    assert {(conflict.by, conflict.status, conflict.at) for conflict in lost} == {
        (turn.acted_by, "canceled", turn.acted_at)
    }
    assert LogEntry.objects.count() == 1


def test_a_cancel_asks_for_its_permission_and_is_logged() -> None:
    turn, _ = turn_of(reply("never"))
    with pytest.raises(PermissionDenied) as refused:
        turn.cancel(by=user_who_may("raise_budget", name="bob"))
    assert str(refused.value) == "bob may not cancel a turn; it takes the permission agentturns.cancel_turn."
    turn.cancel(by=user_who_may("cancel_turn"), reason="a duplicate")
    assert (turn.acted_by, turn.error_message) == ("ann", "Canceled by ann: a duplicate.")
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.object_id, entry.change_message) == (
        "ann",
        str(turn.pk),
        "Canceled. a duplicate",
    )


def test_somebody_who_is_not_logged_in_may_not_cancel() -> None:
    turn, _ = turn_of(reply("never"))
    with pytest.raises(PermissionDenied, match="An anonymous user may not cancel a turn; it takes the permission"):
        turn.cancel(by=AnonymousUser())


def test_the_sessions_next_turn_is_rung_for_and_goes_on(bells: Bells) -> None:
    turn, _ = turn_of(asks("pay"), reply("second answer"))
    turn = run_turn(turn.pk)
    following = turn.session.send("more")
    assert run_turn(following.pk).status == "queued"
    bells.clear()
    turn.cancel()
    assert bells.rung_for() == [following.pk]
    assert run_turn(following.pk).answer == "second answer"


def test_canceling_a_turn_in_the_middle_rings_only_when_the_next_may_run(bells: Bells) -> None:
    first, _ = turn_of(asks("pay"), reply("third answer"))
    first = run_turn(first.pk)
    second = first.session.send("second")
    third = first.session.send("third")
    bells.clear()
    second.cancel()
    assert run_turn(third.pk).status == "queued"
    first.cancel()
    assert bells.rung_for()[-1] == third.pk
    assert run_turn(third.pk).answer == "third answer"


def test_the_end_is_signalled_once_after_its_commit() -> None:
    heard: list[tuple[str, str]] = []

    def note_end(turn: Turn, **_: Any) -> None:
        heard.append((turn.status, Turn.objects.get(pk=turn.pk).status))

    turn_finished.connect(note_end)
    turn, _ = turn_of(reply("never"))
    turn.cancel()
    turn_finished.disconnect(note_end)
    assert heard == [("canceled", "canceled")]


def test_the_time_of_the_end_is_now() -> None:
    turn, _ = turn_of(reply("never"))
    turn.cancel()
    assert timezone.now() - turn.finished_at < timedelta(minutes=1)
