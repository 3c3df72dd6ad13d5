"""How requests come in: once per key, in the order of their session, with what belongs to them."""

from __future__ import annotations

import threading
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections, transaction

from agentturns import Agent, Limits, Session, Turn, TurnState, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply
from tests.models.conftest import Bells
from tests.rivals import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def agent(*script: Any, name: str = "tester", **options: Any) -> Agent:
    return Agent(name=name, model=ScriptedModel(list(script)), instructions="…", **options)


def test_a_start_opens_a_session_queues_its_first_turn_and_rings(bells: Bells) -> None:
    user = User.objects.create_user("ann")
    turn = agent().start(
        "hello", tenant="acme", user=user, context={"order": 7}, metadata={"from": "web"}, limits=Limits(max_cost="0.5")
    )
    assert (turn.status, turn.index, turn.input, turn.tenant, turn.user, turn.user_name) == (
        "queued",
        1,
        "hello",
        "acme",
        user,
        "ann",
    )
    assert (turn.context, turn.limits, turn.limit("max_cost")) == ({"order": 7}, {"max_cost": "0.5"}, Decimal("0.5"))
    session = turn.session
    assert (session.agent, session.tenant, session.user, session.user_name, session.metadata) == (
        "tester",
        "acme",
        user,
        "ann",
        {"from": "web"},
    )
    assert bells.rung_for() == [turn.pk]
    assert turn.waiting_for == "Waits for a worker."


def test_a_start_inside_a_callers_transaction_is_undone_with_it(bells: Bells) -> None:
    tester = agent()
    with pytest.raises(RuntimeError), transaction.atomic():
        tester.start("hello")
        raise RuntimeError
    assert (Turn.objects.count(), Session.objects.count(), bells.rung_for()) == (0, 0, [])


def test_a_later_turn_belongs_to_the_sessions_tenant_and_user_and_has_its_own_context() -> None:
    first = agent().start("hello", tenant="acme", user=User.objects.create_user("ann"), context={"order": 7})
    second = first.session.send("more", context={"order": 8}, limits=Limits(max_steps=2))
    assert (second.session, second.index, second.tenant, second.user_name) == (first.session, 2, "acme", "ann")
    assert (second.context, second.limit("max_steps")) == ({"order": 8}, 2)


def test_eight_starts_with_one_key_are_one_turn_and_one_bell(bells: Bells) -> None:
    tester = agent()
    turns = at_once(*(partial(tester.start, f"hello {number}", tenant="acme", key="mail-1") for number in range(8)))
    assert len({turn.pk for turn in turns}) == 1
    assert (Turn.objects.count(), Session.objects.count()) == (1, 1)
    assert bells.rung_for() == [turns[0].pk]


def test_eight_sends_with_one_key_are_one_turn(bells: Bells) -> None:
    session = agent().start("hello").session
    bells.clear()
    sends = (partial(Session.objects.get(pk=session.pk).send, f"more {number}", key="mail-2") for number in range(8))
    turns = at_once(*sends)
    assert len({turn.pk for turn in turns}) == 1
    assert [turn.index for turn in Turn.objects.order_by("index")] == [1, 2]
    assert bells.rung_for() == [turns[0].pk]


def test_a_key_counts_for_its_agent_and_tenant_only() -> None:
    tester, other = agent(), agent(name="other")
    turns = [
        tester.start("a", tenant="acme", key="k"),
        tester.start("b", tenant="bolt", key="k"),
        other.start("c", tenant="acme", key="k"),
        tester.start("d", tenant="acme"),
        tester.start("e", tenant="acme"),
    ]
    assert len({turn.pk for turn in turns}) == 5
    assert tester.start("again", tenant="acme", key="k") == turns[0]
    assert turns[0].session.send("again", key="k") == turns[0]


def test_a_known_key_returns_the_turn_as_it_stands_now() -> None:
    tester = agent(reply("done"))
    run_turn(tester.start("hello", key="k").pk)
    assert tester.start("hello", key="k").answer == "done"


def test_sends_at_once_are_numbered_without_a_gap() -> None:
    session = agent().start("hello").session
    at_once(*(partial(Session.objects.get(pk=session.pk).send, f"more {number}") for number in range(8)))
    assert list(Turn.objects.order_by("index").values_list("index", flat=True)) == list(range(1, 10))


def test_the_turns_of_a_session_run_one_at_a_time_and_in_order() -> None:
    first = agent(*(reply(f"answer {number}") for number in range(3))).start("one")
    second, third = first.session.send("two"), first.session.send("three")
    assert [turn.pk for turn in Turn.objects.runnable()] == [first.pk]
    assert run_turn(third.pk).status == "queued"
    assert run_turn(second.pk).status == "queued"
    assert [run_turn(turn.pk).answer for turn in (first, second, third)] == ["answer 0", "answer 1", "answer 2"]


def test_no_turn_of_a_session_is_claimed_while_another_runs_or_is_parked() -> None:
    under_way, go_on = threading.Event(), threading.Event()

    @tool(effect="idempotent")
    def hold() -> str:
        """Hold."""
        under_way.set()
        assert go_on.wait(30)
        return ""

    tester = agent(reply(tool_calls=[("hold", {})], cost=2), reply("done"), tools=[hold], limits=Limits(max_cost=1))
    first = tester.start("one")
    second = first.session.send("two")
    worker = threading.Thread(target=lambda: (run_turn(first.pk), connections.close_all()))
    worker.start()
    assert under_way.wait(30)
    assert run_turn(second.pk).waiting_for == f"Waits for turn {first.pk} of the same session, which is running."
    go_on.set()
    worker.join(30)
    assert Turn.objects.get(pk=first.pk).park_reason == "max_cost"
    assert run_turn(second.pk).waiting_for == f"Waits for turn {first.pk} of the same session, which is parked."
    assert list(Turn.objects.runnable()) == []


def test_a_finished_turn_rings_for_the_next_of_its_session(bells: Bells) -> None:
    first = agent(reply("a"), reply("b")).start("one")
    second = first.session.send("two")
    bells.clear()
    run_turn(first.pk)
    assert bells.rung_for() == [second.pk]


def test_the_context_and_the_user_reach_the_tools_and_never_the_model() -> None:
    seen: list[Any] = []

    @tool(effect="idempotent")
    def look(state: TurnState) -> str:
        """Look."""
        seen.append((state.tenant, state.user.username, state.turn_context, state.message, state.session.metadata))
        return ""

    tester = agent(reply(tool_calls=[("look", {})]), reply("done"), tools=[look])
    user = User.objects.create_user("ann")
    run_turn(tester.start("hello", tenant="acme", user=user, context={"secret": 7}, metadata={"from": "web"}).pk)
    assert seen == [("acme", "ann", {"secret": 7}, "hello", {"from": "web"})]
    assert "secret" not in str([request.messages for request in tester.model.requests])


def test_a_user_who_is_deleted_stays_by_name() -> None:
    user = User.objects.create_user("ann")
    turn = agent(reply("done")).start("hello", user=user)
    user.delete()
    turn = run_turn(turn.pk)
    assert (turn.status, turn.user, turn.user_name, turn.session.user_name) == ("completed", None, "ann", "ann")


def test_the_input_is_limited_in_bytes_and_exactly_the_limit_fits(settings: Any) -> None:
    settings.AGENTTURNS = {"MAX_INPUT_BYTES": 6}
    tester = agent()
    assert tester.start("ééé").input == "ééé"
    with pytest.raises(ValueError, match=r"input is 7 bytes, above AGENTTURNS\['MAX_INPUT_BYTES'\] = 6; shorten it"):
        tester.start("éééa")
    assert Turn.objects.count() == 1


CIRCULAR: dict[str, Any] = {}
CIRCULAR["self"] = CIRCULAR


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"tenant": "x" * 201}, ValueError, "tenant is 201 characters long, but at most 200 are kept."),
        ({"tenant": None}, TypeError, "tenant is a NoneType, but it is text."),
        ({"key": "x" * 201}, ValueError, "key is 201 characters long, but at most 200 are kept."),
        ({"key": 7}, TypeError, "key is a int, but it is text."),
        ({"metadata": {"at": {1, 2}}}, TypeError, "metadata['at'] is of type set, which is not JSON; pass text,"),
        ({"metadata": [1]}, TypeError, "metadata is a list, but it is a dict of JSON values."),
        ({"context": CIRCULAR}, ValueError, "context contains itself or is nested too deeply for JSON; pass a flatter"),
        ({"context": "order 7"}, TypeError, "context is a str, but it is a dict of JSON values."),
    ],
)
def test_labels_and_context_of_the_wrong_kind_are_refused(options: Any, error: Any, said: str) -> None:
    with pytest.raises(error) as refused:
        agent().start("hello", **options)
    assert said in str(refused.value)
    assert Session.objects.count() == 0
