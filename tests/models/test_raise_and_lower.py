"""Raising and lowering one turn's caps: who may, what is written, what one of several rivals gets."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction

from agentturns import Agent, Conflict, InvalidBudget, Limits, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply
from agentturns.signals import budget_raised, turn_resumed
from tests.models.conftest import Bells
from tests.people import user_who_may
from tests.rivals import at_once

pytestmark = pytest.mark.django_db(transaction=True)


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    return text


def asks(**options: Any) -> Any:
    return reply(tool_calls=[("note", {"text": "a"})], **options)


def parked_on_cost(**limits: Any) -> Turn:
    """A turn that spent $0.30 of $0.25 and waits; its model answers next."""
    model = ScriptedModel([asks(cost="0.30"), reply("done", cost="0.01")])
    agent = Agent(
        name="tester", model=model, instructions="…", tools=[note], limits=Limits(max_cost=Decimal("0.25"), **limits)
    )
    turn = run_turn(agent.start("go").pk)
    assert turn.park_reason == "max_cost"
    return turn


def test_of_twenty_who_raise_one_turn_one_wins_and_nineteen_learn_who_was_first(bells: Bells) -> None:
    turn = parked_on_cost()
    users = [user_who_may("raise_budget", name=f"user-{number}") for number in range(20)]
    resumed: list[str] = []
    raised: list[Any] = []

    def note_resume(turn: Turn, **_: Any) -> None:
        resumed.append(turn.status)

    def note_raise(by: Any, changes: Any, **_: Any) -> None:
        raised.append((by.username, changes))

    turn_resumed.connect(note_resume)
    budget_raised.connect(note_raise)
    bells.clear()
    outcomes = at_once(
        *(
            partial(Turn.objects.get(pk=turn.pk).raise_budget, max_cost="0.50", by=user, reason="go on")
            for user in users
        )
    )
    turn_resumed.disconnect(note_resume)
    budget_raised.disconnect(note_raise)

    won = [user for user, outcome in zip(users, outcomes, strict=True) if isinstance(outcome, Turn)]
    lost = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
    assert (len(won), len(lost)) == (1, 19)
    turn.refresh_from_db()
    assert {(conflict.status, conflict.by, conflict.at) for conflict in lost} == {
        ("queued", won[0].username, turn.acted_at)
    }
    assert all(f"; {won[0].username} acted on it at " in str(conflict) for conflict in lost)

    assert (turn.status, turn.limit("max_cost")) == ("queued", Decimal("0.50"))
    assert bells.rung_for() == [turn.pk]
    assert resumed == ["queued"]
    assert raised == [(won[0].username, {"max_cost": (Decimal("0.25"), Decimal("0.50"))})]
    change = turn.budget_changes.get()
    assert (change.cap, change.old, change.new, change.by, change.by_name, change.reason) == (
        "max_cost",
        "0.25",
        "0.50",
        won[0],
        won[0].username,
        "go on",
    )
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id, entry.content_type.model) == (won[0], str(turn.pk), "turn")
    assert entry.change_message == "Raised max_cost from $0.25 to $0.50. go on"


def test_the_resumed_turn_runs_once_after_the_race() -> None:
    turn = parked_on_cost()
    at_once(*(partial(Turn.objects.get(pk=turn.pk).raise_budget, max_cost=1) for _ in range(4)))
    at_once(*(partial(run_turn, turn.pk) for _ in range(4)))
    turn.refresh_from_db()
    assert (turn.status, turn.step_count, turn.attempt) == ("completed", 2, 2)


def test_a_user_without_the_permission_may_neither_raise_nor_lower() -> None:
    turn = parked_on_cost()
    user = user_who_may("cancel_turn", "retry_turn", "decide_toolcall", name="bob")
    with pytest.raises(PermissionDenied) as refused:
        turn.raise_budget(max_cost=1, by=user)
    assert str(refused.value) == "bob may not raise a budget; it takes the permission agentturns.raise_budget."
    with pytest.raises(PermissionDenied, match="bob may not lower a budget"):
        turn.lower_budget(max_steps=10, by=user)
    turn.refresh_from_db()
    assert (turn.status, turn.budget_overrides, LogEntry.objects.count()) == ("parked", {}, 0)


def test_trusted_code_leaves_no_log_entry_but_a_budget_change() -> None:
    turn = parked_on_cost()
    turn.raise_budget(max_cost="0.50")
    change = turn.budget_changes.get()
    assert (change.by, change.by_name, LogEntry.objects.count()) == (None, "", 0)


def test_a_rival_of_trusted_code_is_told_so() -> None:
    turn = parked_on_cost()
    rival = Turn.objects.get(pk=turn.pk)
    turn.raise_budget(max_cost="0.50")
    with pytest.raises(
        Conflict, match=r"is queued and is not waiting for a budget.*; trusted code acted on it at "
    ) as lost:
        rival.raise_budget(max_cost="0.60")
    assert (lost.value.by, lost.value.at) == ("", turn.acted_at)


def test_a_raise_names_each_cap_in_one_log_entry() -> None:
    turn = parked_on_cost(max_output_tokens=5)
    turn.raise_budget(max_cost="0.50", max_output_tokens=2000, by=user_who_may("raise_budget"), reason="both")
    assert LogEntry.objects.get().change_message == (
        "Raised max_cost from $0.25 to $0.50, max_output_tokens from 5 tokens to 2,000 tokens. both"
    )
    assert turn.budget_changes.count() == 2
    assert turn.budget_overrides == {"max_cost": "0.50", "max_output_tokens": 2000}


def test_lowering_keeps_the_turn_where_it_is_and_is_logged_with_old_and_new() -> None:
    turn = parked_on_cost(max_steps=9)
    turn.lower_budget(max_steps=3, by=user_who_may("raise_budget"), reason="enough")
    assert (turn.status, turn.limit("max_steps")) == ("parked", 3)
    change = turn.budget_changes.get()
    assert (change.cap, change.old, change.new, change.by_name) == ("max_steps", "9", "3", "ann")
    assert LogEntry.objects.get().change_message == "Lowered max_steps from 9 steps to 3 steps. enough"


def test_a_cap_that_was_off_may_be_set_by_lowering_and_shows_as_no_limit_before() -> None:
    turn = parked_on_cost()
    turn.lower_budget(max_tool_calls=1, by=user_who_may("raise_budget"))
    assert turn.budget_changes.get().old == ""
    assert LogEntry.objects.get().change_message == "Lowered max_tool_calls from no limit to 1 call."


@pytest.mark.parametrize(
    ("caps", "said"),
    [
        (
            {"max_cost": "0.29"},
            "max_cost=$0.29 does not lower it (spent $0.30, limit $0.25); give a value below the limit and not below "
            "what is spent.",
        ),
        ({"max_steps": 50}, "max_steps=50 steps does not lower it (spent 1 step, limit 50 steps)"),
        ({"max_steps": 0}, "max_steps=0 steps does not lower it (spent 1 step, limit 50 steps)"),
        ({"max_steps": None}, "max_steps=None is not a value; give a number."),
        ({"max_stepz": 1}, "Unknown cap 'max_stepz'"),
        ({"unpriced": "park"}, "Unknown cap 'unpriced'"),
        ({}, "Nothing to lower: name a cap and its new value, such as max_cost='0.10'."),
    ],
)
def test_an_unsound_lowering_is_refused_and_changes_nothing(caps: dict[str, Any], said: str) -> None:
    turn = parked_on_cost()
    with pytest.raises(InvalidBudget) as refused:
        turn.lower_budget(**caps)
    assert said in str(refused.value)
    turn.refresh_from_db()
    assert (turn.budget_overrides, turn.budget_changes.count()) == ({}, 0)


def test_a_finished_turn_cannot_be_lowered() -> None:
    turn = parked_on_cost().cancel()
    with pytest.raises(Conflict, match="is canceled and is over, so its budget cannot be lowered"):
        turn.lower_budget(max_steps=3)


def test_a_refused_budget_is_also_a_validation_error_and_carries_its_figures() -> None:
    turn = parked_on_cost()
    with pytest.raises(ValidationError) as refused:
        turn.raise_budget(max_cost="0.20")
    error = refused.value
    assert isinstance(error, InvalidBudget)
    assert (error.cap, error.value, error.spent, error.limit) == (
        "max_cost",
        Decimal("0.20"),
        Decimal("0.30"),
        Decimal("0.25"),
    )
    assert error.messages == [str(error)]


def test_the_agents_standing_limit_and_the_sessions_next_turn_keep_theirs() -> None:
    turn = parked_on_cost()
    turn.raise_budget(max_cost=5)
    following = turn.session.send("more")
    assert (turn.limit("max_cost"), following.limit("max_cost")) == (Decimal(5), Decimal("0.25"))


def test_a_raise_of_a_turn_that_is_gone_is_a_conflict() -> None:
    turn = parked_on_cost()
    gone = Turn.objects.get(pk=turn.pk)
    turn.session.delete()
    with pytest.raises(Conflict, match=f"Turn {gone.pk} does not exist any more") as lost:
        gone.raise_budget(max_cost=1)
    assert lost.value.status == "deleted"


def test_a_raise_inside_a_callers_transaction_that_fails_is_undone_with_it(bells: Bells) -> None:
    turn = parked_on_cost()
    bells.clear()
    with pytest.raises(RuntimeError), transaction.atomic():
        turn.raise_budget(max_cost=1)
        raise RuntimeError
    turn.refresh_from_db()
    assert (turn.status, turn.budget_overrides, turn.budget_changes.count()) == ("parked", {}, 0)
    assert bells.rung_for() == []
