"""``kill -9`` inside a model call and inside a tool of each effect: of the whole worker, or of its busy process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db.models import Q

from agentturns import ToolCall, Turn
from project.desk.models import Refund
from tests.end_to_end.conftest import OpenShop
from tests.end_to_end.stage import Shop, ring_when_abandoned, until, until_it_rests
from tests.end_to_end.vendor import REPLY_COST, Hanging, asks_for, says
from tests.processes import TurnWorker
from tests.wire_server import WireServer

Kill = Callable[[TurnWorker, int], None]


def the_whole_worker(worker: TurnWorker, busy: int) -> None:
    worker.kill()


def its_busy_process(worker: TurnWorker, busy: int) -> None:
    assert busy in {member.pid for member in worker.members()}
    os.kill(busy, signal.SIGKILL)


each_kill = pytest.mark.parametrize("kill", [the_whole_worker, its_busy_process])


@pytest.fixture
def shop(open_shop: OpenShop, wire: WireServer) -> Shop:
    return open_shop(wire.url)


@contextmanager
def after_kill(shop: Shop, kill: Kill, turn: Turn, inside: Callable[[], int]) -> Iterator[None]:
    """Kill a worker once ``inside`` has given the process that runs the turn; in the block a worker has it again."""
    with shop.turnworker() as first:
        kill(first, inside())
        shop.door.open()
        if first.is_running():
            ring_when_abandoned(turn)
            yield
            assert first.is_running()
            return
    assert first.left_behind() == []
    with shop.turnworker():
        ring_when_abandoned(turn)
        yield


def inside_tool(shop: Shop) -> Callable[[], int]:
    return lambda: shop.door.inside().pid


@each_kill
def test_a_transactional_call_that_was_cut_off_has_its_effect_once(shop: Shop, wire: WireServer, kill: Kill) -> None:
    wire.script(asks_for("issue_refund"), says("Refunded."))
    turn = shop.clerks["chat"].start("Refund order A-1001.")
    with after_kill(shop, kill, turn, inside_tool(shop)):
        turn = until_it_rests(turn)

    assert (turn.status, turn.answer, turn.attempt) == ("completed", "Refunded.", 2)
    assert Refund.objects.count() == 1
    assert ToolCall.objects.get().status == "completed"
    assert len(wire.requests) == 2


@each_kill
def test_an_idempotent_call_that_was_cut_off_runs_again(shop: Shop, wire: WireServer, kill: Kill) -> None:
    wire.script(asks_for("look_up"), says("On Monday."))
    turn = shop.clerks["chat"].start("When was order A-1001 delivered?")
    with after_kill(shop, kill, turn, inside_tool(shop)):
        turn = until_it_rests(turn)

    assert (turn.status, turn.answer, turn.attempt) == ("completed", "On Monday.", 2)
    assert shop.effects() == ["look_up", "look_up"]
    assert len(wire.requests) == 2


@each_kill
def test_an_at_most_once_call_that_was_cut_off_waits_in_doubt_for_a_person_and_does_not_run_again(
    shop: Shop, wire: WireServer, kill: Kill
) -> None:
    wire.script(asks_for("send_letter"), says("It is written."))
    turn = shop.clerks["chat"].start("Write to the customer of A-1001.")
    with after_kill(shop, kill, turn, inside_tool(shop)):
        turn = until_it_rests(turn)
        assert (turn.status, turn.park_reason) == ("parked", "in_doubt")
        assert turn.waiting_for == (
            "A crash left it unknown whether the call of send_letter happened: look, then rerun it or confirm its "
            "result."
        )
        assert shop.effects() == ["send_letter"]
        assert len(wire.requests) == 1

        ToolCall.objects.get().confirm("The post office has it.")
        turn = until_it_rests(turn)

    assert (turn.status, turn.answer) == ("completed", "It is written.")
    assert shop.effects() == ["send_letter"]
    assert [request.json["messages"][-1]["content"] for request in wire.requests[1:]] == ["The post office has it."]


def test_a_call_in_doubt_that_a_person_reruns_runs_once_more(shop: Shop, wire: WireServer) -> None:
    wire.script(asks_for("send_letter"), says("It is written."))
    turn = shop.clerks["chat"].start("Write to the customer of A-1001.")
    with after_kill(shop, its_busy_process, turn, inside_tool(shop)):
        until_it_rests(turn)
        ToolCall.objects.get().rerun()
        turn = until_it_rests(turn)

    assert (turn.status, turn.answer) == ("completed", "It is written.")
    assert shop.effects() == ["send_letter", "send_letter"]
    told = [request.json["messages"][-1]["content"] for request in wire.requests[1:]]
    assert told == ["The letter is on its way."]


@each_kill
def test_a_model_call_that_was_cut_off_is_presumed_billed_and_asked_again_word_for_word(
    shop: Shop, wire: WireServer, kill: Kill
) -> None:
    hanging = Hanging()
    wire.script(asks_for("issue_refund"), says("Nobody hears this.", hold=hanging), says("Refunded."))
    shop.door.open()

    def inside_second_call() -> int:
        assert hanging.reached.wait(30)
        return int(Turn.objects.get().lease_owner.split(":")[1])

    turn = shop.clerks["chat"].start("Refund order A-1001.")
    try:
        with after_kill(shop, kill, turn, inside_second_call):
            turn = until_it_rests(turn)
    finally:
        hanging.set()

    assert (turn.status, turn.answer, turn.attempt) == ("completed", "Refunded.", 2)
    first, second = turn.steps.order_by("index")
    assert (first.attempts, first.presumed_cost) == (1, 0)
    assert (second.attempts, second.presumed_cost) == (2, second.estimate)
    assert turn.presumed_cost == second.presumed_cost > 0
    assert turn.cost == 2 * REPLY_COST
    assert turn.spent("max_cost") == turn.cost + turn.presumed_cost
    assert [request.body for request in wire.requests[1:]] == [wire.requests[1].body] * 2
    assert Refund.objects.count() == 1


def cluster_of(worker: TurnWorker) -> int:
    """The process that leads the cluster, in a process group of its own."""
    [group] = {member.group for member in worker.members()} - {worker.pid}
    return group


@pytest.mark.parametrize("victims", ["supervisor", "cluster", "supervisor and cluster"])
def test_the_kill_of_those_in_charge_leaves_no_process_and_the_turn_to_others(
    shop: Shop, wire: WireServer, victims: str
) -> None:
    wire.script(asks_for("look_up"), says("On Monday."))
    turn = shop.clerks["chat"].start("When was order A-1001 delivered?")
    with shop.turnworker() as worker:
        pids = {"supervisor": worker.pid, "cluster": cluster_of(worker)}
        held = shop.door.inside()
        for victim in victims.split(" and "):
            os.kill(pids[victim], signal.SIGKILL)
        held.let_go()
        assert worker.left_behind() == []
        assert worker.wait() == (1 if victims == "cluster" else -signal.SIGKILL)
    free = Turn.objects.filter(Q(status__in=("queued", "completed")) | Q(pk__in=Turn.objects.abandoned()), pk=turn.pk)
    until("the turn given back, or its lease run out", free.exists)
