"""A model that asks a person, and the project's own rule for who may decide."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied

from agentturns import Agent, Conflict, ask_person, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply

pytestmark = pytest.mark.django_db(transaction=True)


def four_eyes(user: Any, call: Any) -> bool | str:
    """Whoever started the turn may not decide its calls."""
    return True if call.turn.user_id != user.pk else "you started this turn yourself"


def operator(name: str) -> User:
    user = User.objects.create_user(name)
    user.user_permissions.add(Permission.objects.get(codename="decide_toolcall"))
    return user


def test_a_question_parks_the_turn_and_the_answer_is_what_the_model_gets() -> None:
    model = ScriptedModel([reply(tool_calls=[("ask_person", {"question": "Which colour?"})]), reply("Blue it is.")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[ask_person])
    turn = run_turn(agent.start("go").pk)
    assert (turn.status, turn.park_reason) == ("parked", "question")
    assert turn.waiting_for == "A person must answer: Which colour?"

    call = turn.tool_calls.get()
    with pytest.raises(Conflict):
        call.approve()
    with pytest.raises(ValueError, match="The answer is empty"):
        call.answer("  ")
    call.answer("Blue")
    assert (call.status, call.approval, call.output_text) == ("completed", "answered", "Blue")
    turn = run_turn(turn.pk)
    assert (turn.status, turn.answer) == ("completed", "Blue it is.")
    assert model.requests[1].messages[-1]["content"] == "Blue"


def test_the_projects_rule_is_asked_and_its_reason_is_told(settings: Any) -> None:
    settings.AGENTTURNS = {"MAY_DECIDE": f"{__name__}.four_eyes"}

    @tool(approval="always")
    def pay() -> str:
        """Pay."""
        return "paid"

    ann, bob = operator("ann"), operator("bob")
    agent = Agent(
        name="tester",
        model=ScriptedModel([reply(tool_calls=[("pay", {})]), reply("done")]),
        instructions="…",
        tools=[pay],
    )
    turn = run_turn(agent.start("go", user=ann).pk)
    call = turn.tool_calls.get()
    for decide in (call.approve, call.decline):
        with pytest.raises(
            PermissionDenied, match="ann may not decide the call of pay: you started this turn yourself"
        ):
            decide(by=ann)
    call.refresh_from_db()
    assert (call.status, call.approval) == ("pending", "required")
    call.approve(by=bob)
    assert run_turn(turn.pk).status == "completed"
