"""``AGENTTURNS["DATABASE"]``: every row, lock and log entry is on that alias, and transactional tools must be too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.subprocesses import run_python

SETTINGS = """
    from pathlib import Path

    here = Path(__file__).parent
    DATABASES = {alias: database(f"sqlite:///{here / alias}.sqlite3") for alias in ("default", "turns")}
    AGENTTURNS = {"DATABASE": "turns"}
"""

SCRIPT = """
    from django.contrib.admin.models import LogEntry
    from django.contrib.auth.models import Group, User
    from django.core.management import call_command

    from agentturns import Agent, BudgetChange, Limits, Session, Step, ToolCall, Turn, tool
    from agentturns.engine.runner import run_turn
    from agentturns.providers.scripted import ScriptedModel, reply

    for alias in ("default", "turns"):
        call_command("migrate", database=alias, verbosity=0)
    boss = User.objects.using("turns").create(username="boss", is_superuser=True)

    @tool(effect="transactional")
    def add(name: str, alias: str) -> str:
        "Add."
        Group.objects.using(alias).create(name=name)
        return "added"

    @tool(effect="idempotent", approval="always")
    def ask(what: str) -> str:
        "Ask."
        return what

    adds = [("add", {"name": "a", "alias": "turns"}), ("add", {"name": "b", "alias": "default"})]
    asks = reply(tool_calls=[*adds, ("ask", {"what": "c"})], cost=2)
    model = ScriptedModel([asks, reply("done"), reply("more done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[add, ask], limits=Limits(max_cost=1))
    turn = run_turn(agent.start("go", user=boss, key="k").pk)
    assert turn.park_reason == "approval", turn.park_reason
    turn.tool_calls.get(name="ask").approve(by=boss)
    turn = run_turn(turn.pk)
    assert turn.park_reason == "max_cost", turn.park_reason
    turn = run_turn(turn.raise_budget(max_cost=5, by=boss, reason="go on").pk)
    following = run_turn(turn.session.send("more").pk)
    agent.start("again", key="cancel").cancel(by=boss)

    outputs = [call.output_text for call in turn.tool_calls.order_by("position")]
    print(turn.status, following.answer, outputs[0], "|", outputs[1], "|", outputs[2])
    for model in (Session, Turn, Step, ToolCall, BudgetChange, LogEntry, Group):
        rows = {alias: model._base_manager.using(alias).count() for alias in ("default", "turns")}
        print(model.__name__, rows["default"], rows["turns"])
    print(Turn.objects.all().spend()["turns"], len(Turn.objects.all().spend_by("agent")))
"""


@pytest.mark.sqlite
def test_every_row_is_on_the_alias_that_the_setting_names(tmp_path: Path) -> None:
    printed = run_python(SCRIPT, tmp_path, settings=SETTINGS).splitlines()
    assert printed == [
        "completed more done added | Error: ForeignWrite: a transactional tool wrote to the database 'default', which "
        "its transaction on 'turns' does not cover; declare the tool at_most_once or idempotent instead | c",
        "Session 0 2",
        "Turn 0 3",
        "Step 0 3",
        "ToolCall 0 3",
        "BudgetChange 0 1",
        "LogEntry 0 3",
        "Group 0 1",
        "3 1",
    ]
