"""Turns whose replies are streamed: what is written to the database meanwhile, and what is offered to the project."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentturns import Step, Turn
from agentturns.engine.runner import run_turn
from tests.providers.kinds import completion, message, response, said_item, text_block
from tests.providers.loopback import asking, providers, run_again
from tests.providers.streams import as_stream
from tests.wire_server import WireServer, answer, stream

pytestmark = pytest.mark.django_db(transaction=True)

THOUSAND = "".join(f"{number:04d} " for number in range(1000))
LONG = {
    "responses": response(said_item(THOUSAND)),
    "chat": completion({"content": THOUSAND}),
    "messages": message(text_block(THOUSAND), stop_reason="end_turn"),
}
SHORT = {"chat": completion({"content": "It left. On time."})}
every_wire = pytest.mark.parametrize("flavour", list(LONG))

heard: list[tuple[int, int, str]] = []


def hear(turn: Turn, step_index: int, text: str) -> None:
    heard.append((turn.pk, step_index, text))


def break_down(turn: Turn, step_index: int, text: str) -> None:
    heard.append((turn.pk, step_index, text))
    raise RuntimeError("no page to show it on")


@pytest.fixture(autouse=True)
def nothing_heard() -> None:
    heard.clear()


def statements_of(turn: Turn) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        run_turn(turn.pk)
    return [query["sql"].split(maxsplit=1)[0] for query in captured]


@every_wire
def test_a_reply_of_a_thousand_pieces_costs_no_write_for_a_piece(wire: WireServer, flavour: str) -> None:
    body = as_stream(flavour, LONG[flavour])
    assert body.count("data: ") > 1000
    with providers(wire.url):
        agent = asking(flavour)
        wire.script(answer(LONG[flavour]))
        whole = agent.start("Count.")
        written_for_whole = statements_of(whole)
        wire.script(stream(body))
        streamed = agent.start("Count.")
        written_for_stream = statements_of(streamed)
    assert written_for_stream == written_for_whole
    for turn in (whole, streamed):
        turn.refresh_from_db()
        assert (turn.status, turn.answer) == ("completed", THOUSAND)


def test_the_text_is_offered_to_the_project_as_it_comes(wire: WireServer) -> None:
    wire.script(stream(as_stream("chat", SHORT["chat"], 9)))
    with providers(wire.url, ON_TEXT=f"{__name__}.hear"):
        turn = run_turn(asking("chat").start("Where?").pk)
    assert heard == [(turn.pk, 1, "It left. "), (turn.pk, 1, "On time.")]


def test_a_listener_that_fails_hears_no_more_of_the_call_and_changes_nothing(
    wire: WireServer, caplog: pytest.LogCaptureFixture
) -> None:
    wire.script(stream(as_stream("chat", SHORT["chat"], 9)))
    with providers(wire.url, ON_TEXT=f"{__name__}.break_down"):
        turn = run_turn(asking("chat").start("Where?").pk)
    assert (turn.status, turn.answer, len(heard)) == ("completed", "It left. On time.", 1)
    assert "on_text failed" in caplog.text and "It left" not in caplog.text


def test_a_listener_that_does_not_exist_is_logged_and_changes_nothing(
    wire: WireServer, caplog: pytest.LogCaptureFixture
) -> None:
    wire.script(stream(as_stream("chat", SHORT["chat"])))
    with providers(wire.url, ON_TEXT="no.such.function"):
        turn = run_turn(asking("chat").start("Where?").pk)
    assert turn.status == "completed"
    assert "AGENTTURNS['ON_TEXT'] names 'no.such.function'" in caplog.text


def test_a_step_that_is_tried_again_is_heard_anew_and_stored_once(wire: WireServer) -> None:
    body = as_stream("chat", SHORT["chat"], 9)
    wire.script(stream(body.split('data: {"id": "chatcmpl-1", "created": 1, "model": "qwen3", "object"')[0]))
    with providers(wire.url, ON_TEXT=f"{__name__}.hear"):
        wire.script(stream(body[: body.index("On time")] + "\n\n"), stream(body))
        turn = run_turn(asking("chat").start("Where?").pk)
        assert turn.status == "queued"
        turn = run_again(turn)
    assert [text for _, _, text in heard] == ["It left. ", "It left. ", "On time."]
    assert Step.objects.get(turn=turn).output == [{"type": "text", "text": "It left. On time."}]
