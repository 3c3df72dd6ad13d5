"""The turns that the demo shows, each brought into its state by what really brings turns there."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from agentturns import Limits, Turn, doorbell
from agentturns.models import Session
from project.desk.agents import SCRIPT, desk, rehearsal
from project.desk.demo.failure import DemoFailed
from project.desk.demo.orders import new_order
from project.desk.demo.processes import Child, Processes

SETTLE_SECONDS: Final = 30
CALL_SECONDS: Final = 30
RING_EVERY_SECONDS: Final = 1.0
ENOUGH: Final = Limits(max_cost=Decimal("0.50"))
# One line of Python, since nothing else of a worker is needed to be killed.
RUN_ONE: Final = "from agentturns.engine.runner import run_turn; run_turn({turn})"


@dataclass(frozen=True, slots=True)
class Seeded:
    """A turn, where it may come to rest (statuses, or reasons of a park), and what a person does next."""

    turn: Turn
    rests_at: tuple[str, ...]
    advice: str

    @property
    def is_at_rest(self) -> bool:
        """Whether the turn, as last read, is where it belongs."""
        return self.turn.status in self.rests_at or self.turn.park_reason in self.rests_at


def seed_others() -> list[Seeded]:
    """Every turn but the crashed one, queued for the worker. One that an earlier demo left untouched is kept."""
    budget = _seed(
        "budget",
        "max_cost",
        "Press “Raise budget and resume”, write 0.20 and a reason.",
        "Order {order} came broken. Please refund all of it.",
    )
    approval = _seed(
        "approval",
        "approval",
        "Open it, read the call, press “Approve” or “Decline…”: the refund is above £25.",
        "Order {order} never arrived. Please refund the £80.00.",
        paid_pence=80_00,
        limits=ENOUGH,
    )
    return [
        budget,
        approval,
        _behind(approval),
        _seed(
            "provider",
            "provider_error",
            "Press “Retry”: the account is filled again.",
            "Where is order {order}?",
            context={"rehearse": "spend_limit"},
        ),
        _seed(
            "steps",
            "failed",
            "Press “Raise budget and resume”, write 12 for the steps.",
            "Where is order {order}, please?",
            limits=Limits(max_steps=1),
        ),
        _seed(
            "done",
            "completed",
            "Nothing; read its steps.",
            "I am not happy with order {order}. May I have £5.00 of it as a refund?",
            limits=ENOUGH,
        ),
    ]


def seed_crashed(processes: Processes) -> Seeded:
    """A turn whose process is killed while its tool is handing an e-mail over; nobody can know whether it went out."""
    seed = _seed(
        "crash",
        "in_doubt",
        "Was the e-mail sent? Press “It did not happen: run it again” or “It happened: confirm…”.",
        "Please e-mail me when order {order} is on its way.",
    )
    if not seed.is_at_rest:
        _kill_inside_email(seed.turn, processes)
    return seed


def ask_real_model() -> Seeded:
    """A request to the real model, under a limit that its first steps pass."""
    order = new_order(45_00)
    turn = desk.start(
        f"Order {order.number} came broken. Please refund all of it.",
        tenant="demo",
        limits=Limits(max_cost=Decimal("0.001")),
    )
    advice = f"This one is {desk.model_id} at work: open it and see what it waits for."
    return Seeded(turn, ("parked", "completed", "failed"), advice)


def settle(seeds: Sequence[Seeded], processes: Processes) -> None:
    """Wait until every turn is where it belongs, or for so long; what is not there yet is shown as it is."""
    ends_at = time.monotonic() + SETTLE_SECONDS
    ring_at = 0.0
    while time.monotonic() < ends_at:
        for seed in seeds:
            seed.turn.refresh_from_db()
        restless = [seed.turn for seed in seeds if not seed.is_at_rest]
        if not restless:
            return
        processes.require_alive()
        if time.monotonic() >= ring_at:
            ring_at = time.monotonic() + RING_EVERY_SECONDS
            # A killed process rings for nobody, and the sweep of an idle worker comes by once a minute only.
            for turn in Turn.objects.runnable().filter(pk__in=[turn.pk for turn in restless]):
                doorbell.ring(turn.pk)
        time.sleep(0.05)


def _seed(kind: str, rests_at: str, advice: str, text: str, *, paid_pence: int = 18_00, **options: Any) -> Seeded:
    known = Turn.objects.filter(session__metadata__demo=kind, index=1).order_by("-id").first()
    if known is not None and (kept := Seeded(known, (rests_at,), advice)).is_at_rest:
        return kept
    agent = desk if desk.model_id == SCRIPT.model_id else rehearsal
    text = text.format(order=new_order(paid_pence).number)
    turn = agent.start(text, tenant="demo", metadata={"demo": kind}, **options)
    return Seeded(turn, (rests_at,), advice)


def _behind(first: Seeded) -> Seeded:
    """The next turn of the same conversation, which waits for the first."""
    session: Session = first.turn.session
    known = session.turns.filter(index__gt=first.turn.index, status=Turn.Status.QUEUED).order_by("index").first()
    turn = known or session.send("Thank you. When was it placed?")
    return Seeded(turn, ("queued",), f"Nothing; it runs once turn {first.turn.pk} of the same conversation is over.")


def _kill_inside_email(turn: Turn, processes: Processes) -> None:
    """Run the turn in a process of its own against a mail server that never greets, and kill it there."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0.2)
        doomed = processes.start(
            "doomed worker",
            "shell",
            "--no-imports",
            "-c",
            RUN_ONE.format(turn=turn.pk),
            DEMO_MAIL_PORT=str(silent.getsockname()[1]),
        )
        with _first_call(silent, doomed):
            doomed.kill()
            processes.forget(doomed)


def _first_call(silent: socket.socket, doomed: Child) -> socket.socket:
    ends_at = time.monotonic() + CALL_SECONDS
    while time.monotonic() < ends_at:
        try:
            connection, _ = silent.accept()
        except TimeoutError:
            doomed.require_alive()
            continue
        return connection
    raise DemoFailed(
        f"The turn to be killed did not reach its e-mail within {CALL_SECONDS} seconds.", log=doomed.tail()
    )
