"""A plain ``save()`` never writes what the engine owns, whatever the instance held."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import models

from agentturns import Agent, BudgetChange, Limits, Message, Notice, Session, Step, ToolCall, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply

pytestmark = pytest.mark.django_db(transaction=True)


@tool(effect="idempotent")
def note(text: str) -> str:
    """Note a text."""
    return text


def finished_turn() -> Turn:
    """A turn with rows of every kind."""
    model = ScriptedModel([reply(tool_calls=[("note", {"text": "a"})], cost="0.3"), reply("done", cost="0.1")])
    limits = Limits(max_cost="0.2", max_tool_calls=3)
    agent = Agent(name="tester", model=model, instructions="…", tools=[note], limits=limits)
    turn = run_turn(agent.start("go", tenant="acme", context={"order": 7}).pk)
    turn = run_turn(turn.raise_budget(max_cost=1).pk)
    Notice.objects.get_or_create(turn=turn, after_step=1, kind="tool_budget", cap="x", text="…")
    Message.objects.create(turn=turn, session=turn.session, kind=Message.Kind.STEER, text="…", after_step=1)
    assert turn.status == "completed"
    return turn


PEOPLES = {
    Turn: {"tenant", "user", "user_name", "context"},
    Session: {"tenant", "user", "user_name", "metadata", "queue_policy"},
    Step: set(),
    ToolCall: {"note"},
    Notice: set(),
    BudgetChange: set(),
    Message: set(),
}


def changed(row: models.Model) -> dict[str, Any]:
    """A value for each column that is not the one it has."""
    values: dict[str, Any] = {}
    for field in row._meta.concrete_fields:
        if field.primary_key:
            continue
        now = getattr(row, field.attname)
        if isinstance(field, models.ForeignKey):
            values[field.attname] = None if now is not None else 999
        elif isinstance(field, models.JSONField):
            values[field.attname] = {"changed": True}
        elif isinstance(field, models.BooleanField):
            values[field.attname] = not now
        elif isinstance(field, models.DateTimeField):
            values[field.attname] = None
        elif isinstance(field, models.CharField | models.TextField):
            values[field.attname] = "changed"
        else:
            values[field.attname] = (now or 0) + 1
    return values


def stored(row: models.Model) -> dict[str, Any]:
    return type(row).objects.filter(pk=row.pk).values(*(field.attname for field in row._meta.concrete_fields)).get()


@pytest.mark.parametrize("model", PEOPLES, ids=lambda model: model.__name__)
def test_a_plain_save_writes_only_what_people_own(model: Any) -> None:
    finished_turn()
    row = model.objects.first()
    before = stored(row)
    user = User.objects.create_user("ann")
    for name, value in changed(row).items():
        setattr(row, name, user.pk if name == "user_id" else value)
    row.save()
    moved = {name.removesuffix("_id") for name, value in stored(row).items() if value != before[name]}
    assert moved == PEOPLES[model]


def test_a_stale_instance_does_not_put_an_old_status_back() -> None:
    model = ScriptedModel([reply("done", cost="0.1")])
    stale = Agent(name="tester", model=model, instructions="…").start("go")
    run_turn(stale.pk)
    assert stale.status == "queued"
    stale.context = {"seen": True}
    stale.save()
    async_to_sync(Turn.objects.get(pk=stale.pk).asave)()
    turn = Turn.objects.get()
    assert (turn.status, turn.answer, turn.step_count, turn.context) == ("completed", "done", 1, {"seen": True})


def test_columns_that_are_named_are_written() -> None:
    turn = finished_turn()
    turn.answer, turn.status = "redacted", "failed"
    turn.save(update_fields=["answer"])
    assert (Turn.objects.get().answer, Turn.objects.get().status) == ("redacted", "completed")
