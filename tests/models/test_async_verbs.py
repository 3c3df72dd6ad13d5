"""Every verb has an async twin that does the same."""

from __future__ import annotations

import inspect
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from agentturns import Agent, Conflict, InvalidBudget, Limits, Session, ToolCall, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply
from tests.lost_workers import Died, run_until_death

pytestmark = pytest.mark.django_db(transaction=True)

TWINS = {
    Agent: ("start",),
    Session: ("send",),
    Turn: ("raise_budget", "lower_budget", "cancel", "retry"),
    ToolCall: ("approve", "decline", "answer", "rerun", "confirm"),
}


@tool(effect="idempotent", approval="always")
def pay(order: str) -> str:
    """Pay."""
    return f"paid {order}"


@tool(effect="at_most_once")
def send(order: str) -> str:
    """Send; the worker dies of "boom"."""
    if order == "boom":
        raise Died
    return "sent"


def agent(*script: Any, name: str = "tester", **limits: Any) -> Agent:
    model = ScriptedModel(list(script))
    return Agent(name=name, model=model, instructions="…", tools=[pay, send], limits=Limits(**limits))


def asks(*calls: tuple[str, str], **options: Any) -> Any:
    return reply(tool_calls=[(name, {"order": order}) for name, order in calls], **options)


def test_every_verb_has_a_coroutine_twin() -> None:
    for owner, verbs in TWINS.items():
        for verb in verbs:
            assert inspect.iscoroutinefunction(getattr(owner, f"a{verb}")), f"{owner.__name__}.a{verb}"


def test_a_session_is_opened_and_continued_from_async_code() -> None:
    async def converse() -> tuple[Turn, Turn]:
        first = await agent().astart("hello", tenant="acme", key="k")
        session = await Session.objects.aget(pk=first.session_id)
        return first, await session.asend("more", context={"order": 7}, limits=Limits(max_steps=2))

    first, second = async_to_sync(converse)()
    assert (first.tenant, first.key, first.index) == ("acme", "k", 1)
    assert (second.index, second.context, second.limit("max_steps")) == (2, {"order": 7}, 2)


def test_a_budget_is_raised_and_lowered_from_async_code() -> None:
    turn = run_turn(agent(asks(("send", "a"), cost="2"), reply("done"), max_cost=1).start("go").pk)

    async def move() -> None:
        lowered = await turn.alower_budget(max_steps=5)
        assert lowered is turn
        with pytest.raises(InvalidBudget):
            await turn.araise_budget(max_cost=1)
        raised = await turn.araise_budget(max_cost=Decimal(3), reason="go on")
        assert (raised.status, raised.limit("max_cost"), raised.limit("max_steps")) == ("queued", Decimal(3), 5)

    async_to_sync(move)()
    assert run_turn(turn.pk).status == "completed"


def test_a_turn_is_retried_and_canceled_from_async_code() -> None:
    turn = run_turn(agent(reply("half", stop_reason="max_tokens"), reply("whole")).start("go").pk)

    async def move() -> None:
        assert (await turn.aretry(reason="again")).status == "queued"
        assert (await turn.acancel(reason="no")).status == "canceled"
        with pytest.raises(Conflict):
            await turn.acancel()

    async_to_sync(move)()


def test_calls_are_decided_from_async_code() -> None:
    turn = run_turn(agent(asks(("pay", "a"), ("pay", "b"), ("pay", "c")), reply("done")).start("go").pk)

    async def decide() -> None:
        first, second, third = [call async for call in turn.tool_calls.order_by("position")]
        assert (await first.aapprove(note="fine")).approval == "approved"
        assert (await second.adecline(reason="too much")).status == "refused"
        assert (await third.aanswer("Paid by hand.")).result == "Paid by hand."

    async_to_sync(decide)()
    turn = run_turn(turn.pk)
    assert [call.output_text for call in turn.tool_calls.order_by("position")] == [
        "paid a",
        "Not run: a person declined this call. Reason: too much",
        "Paid by hand.",
    ]


def test_doubts_are_settled_from_async_code() -> None:
    doubtful = run_until_death(agent(asks(("send", "boom")), reply("done")).start("go"))
    doubtful = run_turn(doubtful.pk)

    async def settle() -> None:
        call = await doubtful.tool_calls.aget()
        await call.arerun()
        with pytest.raises(Conflict):
            await call.aconfirm("sent")

    async_to_sync(settle)()
    doubtful = run_turn(run_until_death(doubtful).pk)

    async def confirm() -> None:
        call = await doubtful.tool_calls.aget()
        assert (await call.aconfirm({"sent": True})).output_text == '{"sent": true}'

    async_to_sync(confirm)()
    assert run_turn(doubtful.pk).status == "completed"
