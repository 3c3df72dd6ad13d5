"""From rows to the bytes of a request: written down for every kind of reply, and equal however the turn got there.

The files beside this one hold whole requests, each the one that follows a reply of its kind. They are the same on every
database. After a change that is meant, ``AGENTTURNS_WRITE_GOLDEN=1 pytest tests/providers/test_golden.py -k plain``
writes them anew; read the difference before you keep it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentturns import Agent, Turn, tool
from agentturns.engine.runner import run_turn
from tests.lost_workers import Died, run_until_death
from tests.providers.fault_lines import WHOLE
from tests.providers.kinds import ALL, KINDS
from tests.providers.loopback import asking, at, providers
from tests.providers.streams import as_stream
from tests.wire_server import WireServer, answer, stream

# Ids are part of what is sent, so each test counts from one.
pytestmark = pytest.mark.django_db(transaction=True, reset_sequences=True)

GOLDEN = Path(__file__).parent / "golden"
ENDS_ITS_TURN = ("text", "refusal", "cut", "paused", "a stop reason not heard of")
ENDING = [(flavour, kind) for flavour, kind in ALL if kind in ENDS_ITS_TURN]
CALLING = [one for one in ALL if one not in ENDING]
# Such calls are answered at once: they neither wait for a person nor run.
NEVER_RUN = ("broken arguments", "cut in a call")
Run = Callable[[WireServer, str], None]


def golden(flavour: str, kind: str) -> Path:
    return GOLDEN / f"{flavour} {kind}.json"


def check(wire: WireServer, flavour: str, kind: str) -> None:
    sent, file = wire.requests[-1].body, golden(flavour, kind)
    assert len(wire.requests) == 2
    if os.environ.get("AGENTTURNS_WRITE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        file.write_bytes(sent + b"\n")
    assert sent + b"\n" == file.read_bytes()


def look_up_tool(**options: Any) -> Any:
    @tool(effect="idempotent", name="look_up", **options)
    def look_up(order: int = 0, note: str = "", empty: dict[str, str] | None = None) -> str:
        """Looks an order up."""
        return f"Order {order} — “{note}”"

    return look_up


def agent_of(flavour: str, **options: Any) -> Agent:
    return asking(flavour, tools=[look_up_tool(**options)])


def plain(wire: WireServer, flavour: str) -> None:
    with providers(wire.url):
        finished(run_turn(agent_of(flavour).start("Where is my order? ☂").pk))


def parked(wire: WireServer, flavour: str) -> None:
    with providers(wire.url):
        turn = run_turn(agent_of(flavour, approval="always").start("Where is my order? ☂").pk)
        finished(run_turn(approved(turn).pk))


def crashed(wire: WireServer, flavour: str) -> None:
    with providers(wire.url):
        turn = agent_of(flavour, approval=dying_once()).start("Where is my order? ☂")
        finished(run_turn(run_until_death(turn).pk))


def crashed_in_the_call(wire: WireServer, flavour: str) -> None:
    from agentturns.providers.remote import RemoteProvider

    call, calls = RemoteProvider.call, iter([False, True])

    def dying(*args: Any, **options: Any) -> Any:
        if next(calls, False):
            raise Died
        return call(*args, **options)

    with providers(wire.url), pytest.MonkeyPatch.context() as patched:
        patched.setattr(RemoteProvider, "call", dying)
        turn = run_until_death(agent_of(flavour).start("Where is my order? ☂"))
        finished(run_turn(turn.pk))


def changed(wire: WireServer, flavour: str) -> None:
    with providers(wire.url):
        agent = agent_of(flavour, approval="always")
        turn = run_turn(agent.start("Where is my order? ☂").pk)
    address = wire.url if flavour == "messages" else f"{wire.url}/v1"
    other: dict[str, Any] = {"stream": False, "extra": {"user": "someone"}}
    other |= {"max_tokens": 99, "prompt_caching": False} if flavour == "messages" else {"service_tier": "flex"}
    other |= {} if flavour == "messages" else {"api": "chat" if flavour == "responses" else "responses"}
    agent.instructions, agent.tools, agent.max_reply_tokens = "Be long.", (look_up_tool(), other_tool), 7
    with at({flavour: address}, **other):
        finished(run_turn(approved(turn).pk))


@tool(effect="idempotent")
def other_tool() -> str:
    """A tool that the deploy of the day before yesterday brought."""
    return "never"


def dying_once() -> Callable[[Any], bool]:
    lives = iter([True])

    def gate(request: Any) -> bool:
        if next(lives, False):
            raise Died
        return False

    return gate


def approved(turn: Turn) -> Turn:
    assert (turn.status, turn.park_reason) == ("parked", "approval")
    for call in turn.tool_calls.all():
        call.approve()
    return turn


def finished(turn: Turn) -> None:
    assert turn.status == "completed", turn.error_message


WAYS: dict[str, Run] = {
    "plain": plain,
    "after a park": parked,
    "after a crash before a tool": crashed,
    "after a crash in the call": crashed_in_the_call,
    "after other settings, and another deploy": changed,
}


ROADS = [
    (flavour, kind, way)
    for flavour, kind in CALLING
    for way in WAYS
    if kind not in NEVER_RUN or way in ("plain", "after a crash in the call")
]


@pytest.mark.parametrize(("flavour", "kind", "way"), ROADS, ids=[": ".join(road) for road in ROADS])
def test_the_request_after_a_reply_that_calls_tools(wire: WireServer, flavour: str, kind: str, way: str) -> None:
    wire.script(answer(KINDS[flavour][kind]), answer(WHOLE[flavour]))
    WAYS[way](wire, flavour)
    check(wire, flavour, kind)


@pytest.mark.parametrize(("flavour", "kind"), CALLING, ids=[f"{flavour}: {kind}" for flavour, kind in CALLING])
def test_the_request_after_a_streamed_reply_is_the_same(wire: WireServer, flavour: str, kind: str) -> None:
    wire.script(stream(as_stream(flavour, KINDS[flavour][kind], 3)), answer(WHOLE[flavour]))
    plain(wire, flavour)
    check(wire, flavour, kind)


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize(("flavour", "kind"), ENDING, ids=[f"{flavour}: {kind}" for flavour, kind in ENDING])
def test_the_request_of_the_turn_after_a_reply_that_ended_its_turn(
    wire: WireServer, flavour: str, kind: str, streamed: bool
) -> None:
    reply = KINDS[flavour][kind]
    wire.script(stream(as_stream(flavour, reply, 3)) if streamed else answer(reply), answer(WHOLE[flavour]))
    with providers(wire.url):
        turn = run_turn(agent_of(flavour).start("Where is my order? ☂").pk)
        assert turn.status == ("completed" if kind == "text" else "failed")
        finished(run_turn(turn.session.send("And now?").pk))
    check(wire, flavour, kind)
