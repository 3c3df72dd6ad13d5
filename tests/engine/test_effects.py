"""The three effects of a tool: what is rolled back, what is recorded, what the model is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import OperationalError, connection, connections, transaction

from agentturns import Agent, Halt, Tool, ToolCall, Turn, TurnState, tool
from agentturns.engine.runner import run_turn
from agentturns.models.claims import claim
from agentturns.models.clock import database_now
from agentturns.providers.scripted import ScriptedModel, reply

pytestmark = pytest.mark.django_db(transaction=True)


def run_one(declared: Tool, arguments: dict[str, Any] | None = None) -> tuple[Turn, ToolCall]:
    """A turn whose model asks for ``declared`` once and then answers."""
    model = ScriptedModel([reply(tool_calls=[(declared.name, arguments or {})]), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[declared])
    turn = run_turn(agent.start("go").pk)
    return turn, turn.tool_calls.get()


def group_names() -> list[str]:
    return list(Group.objects.order_by("name").values_list("name", flat=True))


def transactional(function: Callable[..., Any]) -> Tool:
    return tool(effect="transactional")(function)


def test_a_transactional_tool_commits_its_effect_with_its_completion() -> None:
    @transactional
    def add(name: str) -> dict[str, str]:
        """Add."""
        Group.objects.create(name=name)
        return {"added": name}

    turn, call = run_one(add, {"name": "a"})
    assert turn.status == "completed"
    assert (call.status, call.result, call.output_text) == ("completed", {"added": "a"}, '{"added": "a"}')
    assert group_names() == ["a"]


def test_a_transactional_tool_that_raises_leaves_nothing_and_the_model_is_told() -> None:
    @transactional
    def add(name: str) -> None:
        """Add."""
        Group.objects.create(name=name)
        raise ValueError("no such customer")

    turn, call = run_one(add, {"name": "a"})
    assert turn.status == "completed"
    assert (call.status, call.output_text) == ("failed", "Error: ValueError: no such customer")
    assert group_names() == []


def test_a_deferred_constraint_that_fails_at_commit_is_the_tools_error() -> None:
    @transactional
    def add() -> str:
        """Add."""
        Group.objects.create(name="a")
        Permission.objects.create(content_type_id=999_999, codename="x", name="x")
        return "added"

    turn, call = run_one(add)
    assert turn.status == "completed"
    assert call.status == "failed"
    assert "IntegrityError" in call.output_text
    assert group_names() == []


@pytest.mark.sqlite
def test_a_tool_that_swallows_disk_full_is_not_recorded_as_done() -> None:
    @transactional
    def add() -> str:
        """Add."""
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA page_count")
            cursor.execute(f"PRAGMA max_page_count = {cursor.fetchone()[0]}")
            try:
                cursor.executemany(
                    "INSERT INTO auth_group (name) VALUES (%s)", [[str(n).zfill(100)] for n in range(20_000)]
                )
            except OperationalError as error:
                assert "full" in str(error)
            finally:
                cursor.execute("PRAGMA max_page_count = 1073741823")
        return "added"

    turn, call = run_one(add)
    assert turn.status == "completed"
    assert call.status == "failed"
    assert "transaction of this call was ended" in call.output_text
    assert group_names() == []


@pytest.mark.postgres
def test_a_tool_that_swallows_a_database_error_is_not_recorded_as_done() -> None:
    @transactional
    def add() -> str:
        """Add."""
        Group.objects.create(name="a")
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1/0")
        except Exception:
            pass
        return "added"

    turn, call = run_one(add)
    assert (turn.status, call.status) == ("completed", "failed")
    assert "transaction of this call was ended" in call.output_text
    assert group_names() == []


def test_a_tool_that_commits_by_itself_is_not_recorded_as_done() -> None:
    @transactional
    def add() -> str:
        """Add."""
        with connection.cursor() as cursor:
            cursor.execute("COMMIT")
        return "added"

    _, call = run_one(add)
    assert call.status == "failed"
    assert "transaction of this call was ended" in call.output_text


@pytest.mark.postgres
def test_a_deadlock_is_run_again_and_not_told_to_the_model() -> None:
    first, second = Group.objects.create(name="first"), Group.objects.create(name="second")
    tool_has_first, other_has_second = threading.Event(), threading.Event()
    tries: list[int] = []

    @transactional
    def swap() -> str:
        """Swap."""
        tries.append(1)
        Group.objects.filter(pk=first.pk).update(name="by tool")
        if len(tries) == 1:
            with connection.cursor() as cursor:  # this side is the victim
                cursor.execute("SET LOCAL deadlock_timeout = '10ms'")
            tool_has_first.set()
            other_has_second.wait(5)
        Group.objects.filter(pk=second.pk).update(name="by tool too")
        return "swapped"

    def other() -> None:
        tool_has_first.wait(5)
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL deadlock_timeout = '5s'")
            Group.objects.filter(pk=second.pk).update(name="by other")
            other_has_second.set()
            Group.objects.filter(pk=first.pk).update(name="by other too")
        connection.close()

    rival = threading.Thread(target=other)
    rival.start()
    turn, call = run_one(swap)
    rival.join(10)
    assert (turn.status, call.status, call.output_text, len(tries)) == ("completed", "completed", "swapped", 2)
    assert sorted(group_names()) == ["by tool", "by tool too"]


@pytest.mark.postgres
def test_a_connection_lost_during_a_transactional_tool_runs_it_again() -> None:
    tries: list[int] = []

    @transactional
    def add() -> str:
        """Add."""
        tries.append(1)
        Group.objects.create(name=f"try {len(tries)}")
        if len(tries) == 1:
            killer = connection.copy()
            with killer.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s)", [connection.connection.info.backend_pid])
            killer.close()
            Group.objects.count()
        return "added"

    turn, call = run_one(add)
    assert (turn.status, call.status, call.output_text) == ("completed", "completed", "added")
    assert group_names() == ["try 2"]


@pytest.mark.parametrize("effect", ["at_most_once", "idempotent"])
def test_the_other_effects_keep_what_they_wrote_when_they_raise(effect: Any) -> None:
    @tool(effect=effect)
    def add(name: str) -> None:
        """Add."""
        Group.objects.create(name=name)
        raise RuntimeError("after the fact")

    turn, call = run_one(add, {"name": "a"})
    assert (turn.status, call.status, call.output_text) == (
        "completed",
        "failed",
        "Error: RuntimeError: after the fact",
    )
    assert group_names() == ["a"]


def test_an_exit_of_the_process_asked_for_by_a_tool_is_its_error() -> None:
    @tool
    def leave() -> None:
        """Leave."""
        raise SystemExit(3)

    turn, call = run_one(leave)
    assert (turn.status, call.output_text) == ("completed", "Error: SystemExit: 3")


@pytest.mark.parametrize("effect", ["transactional", "at_most_once", "idempotent"])
def test_an_async_tool_runs_on_the_connection_of_its_call(effect: Any) -> None:
    @tool(effect=effect)
    async def add(name: str) -> str:
        """Add."""
        await Group.objects.acreate(name=name)
        return "added"

    turn, call = run_one(add, {"name": "a"})
    assert (turn.status, call.output_text) == ("completed", "added")
    assert group_names() == ["a"]


def test_an_async_transactional_tool_that_raises_is_rolled_back() -> None:
    @transactional
    async def add() -> None:
        """Add."""
        await Group.objects.acreate(name="a")
        raise ValueError("no")

    _, call = run_one(add)
    assert call.status == "failed"
    assert group_names() == []


def test_a_tool_sees_its_own_call_and_the_context_of_the_turn() -> None:
    seen: dict[str, Any] = {}

    @tool
    def look(state: TurnState) -> str:
        """Look."""
        seen.update(call=state.current_tool_call.pk, name=state.current_tool_name, context=state.turn_context)
        return ""

    model = ScriptedModel([reply(tool_calls=[("look", {})]), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[look])
    turn = run_turn(agent.start("go", context={"order": 7}).pk)
    call = turn.tool_calls.get()
    assert seen == {"call": call.pk, "name": "look", "context": {"order": 7}}
    assert call.output_text == "(no output)"


def test_a_turn_started_and_run_inside_a_tool_leaves_its_parents_call_intact() -> None:
    seen: list[Any] = []
    child = Agent(
        name="child",
        model=ScriptedModel(lambda request: reply(str(request.state.current_tool_call))),
        instructions="…",
    )

    @tool
    def delegate(state: TurnState) -> str:
        """Delegate."""
        answer = run_turn(child.start("sub").pk).answer
        seen.append(state.current_tool_call.name)
        return answer

    turn, call = run_one(delegate)
    assert (turn.status, call.output_text, seen) == ("completed", "None", ["delegate"])


def test_a_halting_tool_ends_the_turn_and_the_rest_of_its_batch_is_not_run() -> None:
    ran: list[str] = []

    @tool
    def hand_over() -> Halt:
        """Hand over."""
        return Halt("A person will call you.")

    @tool
    def other() -> str:
        """Other."""
        ran.append("other")
        return ""

    model = ScriptedModel([reply(tool_calls=[("hand_over", {}), ("other", {})])])
    agent = Agent(name="tester", model=model, instructions="…", tools=[hand_over, other])
    turn = run_turn(agent.start("go").pk)
    assert (turn.status, turn.answer, ran) == ("completed", "A person will call you.", [])
    assert [call.status for call in turn.tool_calls.order_by("position")] == ["completed", "refused"]


def test_a_turn_halted_by_a_call_ends_even_if_its_worker_died_right_after_the_call() -> None:
    @tool(halts=True)
    def finish() -> str:
        """Finish."""
        return "All done."

    model = ScriptedModel([reply(tool_calls=[("finish", {})])])
    agent = Agent(name="tester", model=model, instructions="…", tools=[finish])
    turn = run_turn(agent.start("go").pk)
    assert (turn.status, turn.answer) == ("completed", "All done.")
    # The rows as a worker leaves them that dies between the call's transaction and the end of the turn.
    Turn.objects.filter(pk=turn.pk).update(
        status="running", answer="", finished_at=None, lease_expires_at=database_now() - timedelta(seconds=1)
    )
    turn.session.active_turn = turn
    turn.session.save(update_fields=["active_turn"])
    turn = run_turn(turn.pk)
    assert (turn.status, turn.answer, turn.step_count) == ("completed", "All done.", 1)


def test_a_halting_tool_that_fails_does_not_end_the_turn() -> None:
    @tool(halts=True)
    def finish() -> str:
        """Finish."""
        raise ValueError("not yet")

    turn, call = run_one(finish)
    assert (turn.answer, call.status) == ("done", "failed")


def test_calls_of_a_batch_run_together_up_to_the_width_and_answer_in_their_order() -> None:
    lock = threading.Lock()
    at_once: list[int] = [0]
    most: list[int] = [0]
    seen: list[tuple[int, int]] = []

    @tool(effect="idempotent")
    def slow(number: int, state: TurnState) -> str:
        """Slow."""
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.1)
        with lock:
            at_once[0] -= 1
            seen.append((state.current_tool_call.position, number))
        return str(number)

    model = ScriptedModel([reply(tool_calls=[("slow", {"number": number}) for number in range(12)]), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[slow], tool_concurrency=4)
    turn = run_turn(agent.start("go").pk)
    assert (turn.status, most[0]) == ("completed", 4)
    assert sorted(seen) == [(number, number) for number in range(12)]
    results = [message["content"] for message in model.requests[1].messages if message["role"] == "tool"]
    assert results == [str(number) for number in range(12)]


def test_a_turn_with_a_tool_that_can_ask_runs_its_calls_one_by_one() -> None:
    widths: list[int | None] = []

    @tool(effect="idempotent")
    def look(state: TurnState) -> str:
        """Look."""
        widths.append(state.tool_concurrency)
        return ""

    @tool(approval="always")
    def pay() -> str:
        """Pay."""
        return ""

    model = ScriptedModel([reply(tool_calls=[("look", {}), ("look", {})]), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[look, pay], tool_concurrency=4)
    run_turn(agent.start("go").pk)
    assert widths == [None, None]


def test_transactional_calls_of_a_concurrent_batch_run_one_at_a_time() -> None:
    overlaps: list[int] = [0]
    busy = threading.Lock()

    @transactional
    def add(name: str) -> str:
        """Add."""
        if not busy.acquire(blocking=False):
            overlaps[0] += 1
            return "overlap"
        Group.objects.create(name=name)
        time.sleep(0.02)
        busy.release()
        return name

    model = ScriptedModel([reply(tool_calls=[("add", {"name": name}) for name in "abcdef"]), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[add], tool_concurrency=4)
    turn = run_turn(agent.start("go").pk)
    assert (turn.status, overlaps[0], group_names()) == ("completed", 0, list("abcdef"))


def test_a_transactional_tool_that_ends_late_is_rolled_back_and_told_as_timed_out() -> None:
    @tool(effect="transactional", timeout=0.05)
    def slow() -> str:
        """Slow."""
        Group.objects.create(name="late")
        time.sleep(0.1)
        return "late"

    turn, call = run_one(slow)
    assert (turn.status, call.status) == ("completed", "failed")
    assert call.output_text == "Error: no result within 0.05 seconds; nothing was changed."
    assert group_names() == []


@pytest.mark.parametrize("effect", ["transactional", "at_most_once", "idempotent"])
def test_a_hung_call_is_settled_while_it_hangs_and_its_late_result_cannot_land(effect: Any) -> None:
    settled = threading.Event()

    @tool(effect=effect, timeout=0.1)
    def hang() -> str:
        """Hang."""
        Group.objects.create(name="hung")
        settled.wait(30)
        return "too late"

    model = ScriptedModel([reply(tool_calls=[("hang", {})]), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[hang])
    turn = agent.start("go")
    worker = threading.Thread(target=lambda: (run_turn(turn.pk), connections.close_all()))
    worker.start()
    while not ToolCall.objects.filter(turn=turn, status="failed").exists():
        time.sleep(0.02)
    waiting = Turn.objects.get(pk=turn.pk)
    assert (waiting.status, waiting.session.active_turn) == ("queued", None)
    settled.set()
    worker.join(30)
    turn.refresh_from_db()
    call = turn.tool_calls.get()
    assert (turn.status, call.status, turn.crashes) == ("completed", "failed", 0)
    assert "no result within 0.1 seconds" in call.output_text
    assert group_names() == ([] if effect == "transactional" else ["hung"])


def test_a_worker_that_lost_its_lease_during_a_transactional_tool_leaves_no_effect() -> None:
    @transactional
    def add() -> str:
        """Add."""
        Group.objects.create(name="a")
        Turn.objects.update(lease_owner="somebody else")
        return "added"

    model = ScriptedModel([reply(tool_calls=[("add", {})]), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[add])
    turn = run_turn(agent.start("go").pk)
    assert (turn.status, turn.tool_calls.get().status) == ("running", "pending")
    assert group_names() == []
    assert claim(turn.pk, "a third") is None
