"""A database connection that is lost between an engine's statements: nothing is lost with it, nothing is repeated."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from agentturns import Agent, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


def cut_this_connection() -> None:
    """End this thread's connection from the server's side, as a restart of the server does."""
    killer = connection.copy()
    with killer.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [connection.connection.info.backend_pid])
    killer.close()


def test_a_connection_lost_during_a_model_call_costs_no_second_call() -> None:
    asked: list[int] = []

    @tool(effect="idempotent")
    def look() -> str:
        """Look."""
        return "seen"

    def script(request: Any) -> Any:
        asked.append(len(request.messages))
        cut_this_connection()
        return reply(tool_calls=[("look", {})]) if len(asked) == 1 else reply("done")

    agent = Agent(name="tester", model=ScriptedModel(script), instructions="…", tools=[look])
    turn = run_turn(agent.start("go").pk)
    assert (turn.status, turn.answer, turn.attempt, len(asked)) == ("completed", "done", 1, 2)
    assert [step.attempts for step in turn.steps.all()] == [1, 1]


@pytest.mark.parametrize("effect", ["at_most_once", "idempotent"])
def test_a_connection_lost_during_a_tool_costs_no_second_run(effect: Any) -> None:
    ran: list[int] = []

    @tool(effect=effect)
    def send() -> str:
        """Send."""
        ran.append(1)
        cut_this_connection()
        return "sent"

    model = ScriptedModel([reply(tool_calls=[("send", {})]), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[send])
    turn = run_turn(agent.start("go").pk)
    assert (turn.status, turn.tool_calls.get().output_text, ran) == ("completed", "sent", [1])
