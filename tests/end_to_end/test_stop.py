"""SIGTERM while a turn runs: it stops between two pieces of work, and another worker goes on from there."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

from agentturns import Limits, ToolCall, Turn
from project.desk.models import Refund
from tests.end_to_end.conftest import OpenShop
from tests.end_to_end.shop.door import Held
from tests.end_to_end.stage import Shop, grows, until_it_rests
from tests.end_to_end.vendor import asks_for, says
from tests.processes import TurnWorker
from tests.wire_server import WireServer


def let_go_until_it_ends(shop: Shop, worker: TurnWorker, held: Held) -> int:
    """Let each tool that begins return, until the worker has ended; its exit code."""
    held.let_go()
    while worker.is_running():
        with suppress(TimeoutError):
            shop.door.inside(seconds=0.2).let_go()
    return worker.wait()


def test_a_stopped_worker_gives_its_turn_back_and_the_next_one_completes_it_without_repeating_anything(
    open_shop: OpenShop, wire: WireServer
) -> None:
    shop = open_shop(wire.url)
    wire.script(asks_for("issue_refund", "send_letter"))  # again and again, so that the signal finds it at work
    no_cap_in_the_way = Limits(max_cost=Decimal(10), max_steps=10_000)
    turn = shop.clerks["chat"].start("Serve the customer of A-1001.", limits=no_cap_in_the_way)
    with shop.turnworker() as worker:
        held = shop.door.inside()
        worker.stop()
        assert let_go_until_it_ends(shop, worker, held) == 0
        assert worker.left_behind() == []
    stopped = Turn.objects.get(pk=turn.pk)
    assert (stopped.status, stopped.attempt, stopped.crashes) == ("queued", 1, 0)
    assert {call.status for call in ToolCall.objects.all()} <= {"completed", "pending"}

    wire.script(says("Served."))
    shop.door.open()
    with shop.turnworker():
        turn = until_it_rests(turn)

    assert (turn.status, turn.answer, turn.attempt, turn.presumed_cost) == ("completed", "Served.", 2, 0)
    asked = stopped.step_count
    assert turn.step_count == len(wire.requests) == asked + 1
    assert {call.status for call in ToolCall.objects.all()} == {"completed"}
    assert (Refund.objects.count(), shop.effects()) == (asked, ["send_letter"] * asked)
    assert grows([request.json["messages"] for request in wire.requests])
