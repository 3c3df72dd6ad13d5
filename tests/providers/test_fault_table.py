"""Each line of the fault table, end to end: what the rows say, what the server saw, how long the turn waits."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from agentturns import Step, Turn
from agentturns.engine.runner import run_turn
from tests.llmock_server import LLMock
from tests.providers.fault_lines import BROKEN_OFF, TABLE, WHOLE, Line, openai, refused
from tests.providers.loopback import KEY, asking, at, providers, run_again
from tests.providers.streams import as_stream
from tests.wire_server import WireServer, answer, stream

pytestmark = pytest.mark.django_db(transaction=True)

every_wire = pytest.mark.parametrize("flavour", list(WHOLE))


@pytest.mark.parametrize("line", TABLE, ids=lambda line: line.name)
def test_a_line_of_the_table(wire: WireServer, line: Line) -> None:
    wire.script(line.given)
    with providers(wire.url):
        turn = asking(line.flavour).start("Where is order 7?")
        before = timezone.now()
        turn = run_turn(turn.pk)
        after = timezone.now()
    step = turn.steps.get()

    assert len(wire.requests) == step.attempts == 1
    assert turn.error_code == line.code
    assert step.error and step.error in turn.error_message and line.advice in turn.error_message
    assert step.estimate and step.estimate > 0
    assert (step.presumed_cost > 0) is (turn.presumed_cost > 0) is line.presumed
    if line.wait is None:
        assert (turn.status, turn.park_reason, turn.run_after) == ("parked", "provider_error", None)
        assert line.advice in turn.waiting_for
    else:
        most = min(900.0, line.wait * 1.25)
        assert (turn.status, turn.provider_failures) == ("queued", 1)
        assert turn.run_after is not None
        earliest, latest = before + timedelta(seconds=line.wait), after + timedelta(seconds=most)
        assert earliest - SLACK <= turn.run_after <= latest + SLACK


# The database's clock says when, this process's clock says when it was asked.
SLACK = timedelta(milliseconds=50)


@every_wire
def test_a_server_that_is_not_there_costs_nothing(flavour: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        with providers(f"http://127.0.0.1:{closed.getsockname()[1]}"):
            turn = run_turn(asking(flavour).start("Where?").pk)
    assert (turn.status, turn.error_code, turn.presumed_cost) == ("queued", "unreachable", 0)


@every_wire
def test_a_missing_key_parks_before_anything_is_sent(
    wire: WireServer, flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with providers(wire.url, api_key=""):
        turn = run_turn(asking(flavour).start("Where?").pk)
    assert (turn.status, turn.park_reason, turn.error_code) == ("parked", "provider_error", "missing_key")
    assert "API_KEY" in turn.waiting_for and not wire.requests


@every_wire
def test_our_own_deadline_ends_a_call_and_presumes_its_cost(wire: WireServer, flavour: str) -> None:
    hold = threading.Event()
    wire.script(answer(WHOLE[flavour], hold=hold))
    with providers(wire.url, MODEL_TIMEOUT=0.3):
        turn = run_turn(asking(flavour).start("Where?").pk)
    hold.set()
    step = turn.steps.get()
    assert (turn.status, turn.error_code, len(wire.requests)) == ("queued", "timeout", 1)
    assert turn.presumed_cost == step.presumed_cost == step.estimate


def test_a_turn_gives_up_after_its_attempts_with_every_one_of_them_recorded(wire: WireServer) -> None:
    wire.script(refused(503))
    with providers(wire.url):
        turn = asking("chat").start("Where?")
        waits = []
        while (turn := run_again(turn)).status == "queued":
            waits.append(turn.provider_failures)
            assert turn.steps.get().attempts == len(wire.requests)
        assert (turn.status, turn.park_reason, waits) == ("parked", "provider_error", [1, 2, 3, 4, 5])
        assert turn.steps.get().attempts == len(wire.requests) == 6
        assert "6 attempts failed" in turn.waiting_for

        wire.script(answer(WHOLE["chat"]))
        turn.retry()
        turn = run_turn(turn.pk)
    assert (turn.status, turn.answer, turn.steps.get().attempts) == ("completed", "It left.", 7)


def test_each_wait_is_twice_the_one_before(wire: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentturns.engine.backoff.random.uniform", lambda least, most: least)
    wire.script(refused(503))
    with providers(wire.url):
        turn = asking("chat").start("Where?")
        for wait in (1, 2, 4, 8, 16):
            before = timezone.now()
            turn = run_again(turn)
            assert turn.run_after is not None
            assert turn.run_after >= before + timedelta(seconds=wait) - SLACK
            assert turn.run_after <= timezone.now() + timedelta(seconds=wait) + SLACK


def test_a_success_forgets_the_failures_before_it(wire: WireServer) -> None:
    wire.script(refused(503), refused(503), answer(WHOLE["chat"]))
    with providers(wire.url):
        turn = asking("chat").start("Where?")
        for _ in range(3):
            turn = run_again(turn)
    assert (turn.status, turn.provider_failures, turn.steps.get().error) == ("completed", 0, "")


def test_a_cut_stream_is_presumed_at_what_was_seen_of_it(wire: WireServer) -> None:
    wire.script(stream(BROKEN_OFF))
    with providers(wire.url):
        turn = run_turn(asking("messages").start("Where?").pk)
    # 50 at 3 USD a million, 40 read from the cache at 0.30, 10 written at 3.75, 8 characters as 4 tokens at 15.
    assert turn.presumed_cost == Decimal("0.0002595") != turn.steps.get().estimate


@every_wire
@pytest.mark.parametrize("streamed", [True, False])
def test_a_reply_without_usage_is_presumed_and_not_free(wire: WireServer, flavour: str, streamed: bool) -> None:
    silent = {**WHOLE[flavour], "usage": {}}
    wire.script(stream(as_stream(flavour, silent)) if streamed else answer(silent))
    with providers(wire.url):
        turn = run_turn(asking(flavour).start("Where?").pk)
    step = turn.steps.get()
    assert (turn.status, step.input_tokens, step.cost) == ("completed", None, None)
    assert turn.presumed_cost == step.presumed_cost == step.estimate
    assert step.price_source == "estimate: the reply carried no usage"


# -- against a mock that knows nothing of us ---------------------------------------------------------------------------

BROKEN_STREAMS = [("disconnect", "connection_lost"), ("truncate", "no_stop_reason"), ("malformed", "invalid_json")]


@pytest.fixture
def mocked(llmock: LLMock) -> Iterator[LLMock]:
    addresses = {"responses": llmock.openai_url, "chat": llmock.openai_url, "messages": llmock.anthropic_url}
    with at(addresses):
        yield llmock


@every_wire
@pytest.mark.parametrize(("status", "state"), [(401, "parked"), (429, "queued"), (500, "queued"), (529, "queued")])
def test_a_failing_mock_is_asked_once(mocked: LLMock, flavour: str, status: int, state: str) -> None:
    mocked.script({"type": "fail", "status": status, "retry_after": 2})
    turn = run_turn(asking(flavour).start("Where?").pk)
    assert (turn.status, turn.presumed_cost) == (state, 0)
    assert len(mocked.requests()) == turn.steps.get().attempts == 1


@every_wire
@pytest.mark.parametrize(("kind", "code"), BROKEN_STREAMS)
def test_a_mocks_broken_stream_is_tried_again_and_paid_once(mocked: LLMock, flavour: str, kind: str, code: str) -> None:
    mocked.script(
        {"type": "stream_fault", "kind": kind, "after_chunks": 3},
        {"type": "reply", "text": "One two three four five six."},
        {"type": "reply", "text": "It left."},
    )
    turn = run_turn(asking(flavour).start("Where?").pk)
    step = turn.steps.get()
    assert (turn.status, turn.error_code, len(mocked.requests())) == ("queued", code, 1)
    assert step.presumed_cost > 0

    turn = run_again(turn)
    step.refresh_from_db()
    assert (turn.status, turn.step_count, len(mocked.requests())) == ("completed", 1, step.attempts)
    assert turn.cost == step.cost and turn.presumed_cost == step.presumed_cost
    assert mocked.verdict().get("passed", True)


def rows(turn: Turn) -> list[Any]:
    return list(Step.objects.filter(turn=turn).values())


def test_the_key_is_in_no_row(wire: WireServer) -> None:
    wire.script(openai(401, "invalid_api_key", f"Incorrect API key: {KEY}"))
    with providers(wire.url):
        turn = run_turn(asking("responses").start("Where?").pk)
    told = json.dumps([rows(turn), list(Turn.objects.values())], default=str)
    assert "sk-loopback" not in told and "[key]" in told
