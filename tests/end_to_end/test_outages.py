"""A vendor that is down, says to wait, or refuses the key: what the turn and its worker do meanwhile."""

from __future__ import annotations

import socket
from datetime import timedelta

from agentturns import Turn
from tests.end_to_end.conftest import OpenShop
from tests.end_to_end.stage import until, until_it_rests
from tests.end_to_end.vendor import back_up, says
from tests.llmock_server import LLMock


def backed_off(turn: Turn) -> Turn:
    """The turn, once it waits for another attempt."""
    waiting = Turn.objects.filter(pk=turn.pk, status="queued", run_after__isnull=False)
    return until(f"turn {turn.pk} backed off", waiting.first)


def test_a_turn_waits_in_the_queue_while_its_vendor_is_down_and_completes_once_it_is_up(
    open_shop: OpenShop, llmock: LLMock
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens: connections are refused
        port = taken.getsockname()[1]
    shop = open_shop(f"http://127.0.0.1:{port}", llmock.anthropic_url)
    llmock.script({"type": "reply", "text": "I am free."})
    with shop.turnworker("--concurrency", "1"):
        turn = backed_off(shop.clerks["chat"].start("Are you there?"))
        assert turn.run_after - turn.steps.get().started_at >= timedelta(seconds=1)
        assert (turn.provider_failures, turn.presumed_cost, turn.lease_owner) == (1, 0, "")
        assert "cannot be reached" in turn.waiting_for

        meanwhile = until_it_rests(shop.clerks["messages"].start("And you?"))
        assert (meanwhile.status, meanwhile.answer) == ("completed", "I am free.")

        with back_up(port, says("I am back.")) as heard:
            turn = until_it_rests(turn)

    assert (turn.status, turn.answer, turn.provider_failures) == ("completed", "I am back.", 0)
    assert turn.steps.get().attempts > 1
    assert len(heard) == 1


def test_a_vendors_wish_to_wait_is_honoured(open_shop: OpenShop, llmock: LLMock) -> None:
    shop = open_shop(llmock.openai_url)
    llmock.script({"type": "fail", "status": 429, "retry_after": 3}, {"type": "reply", "text": "Now."})
    with shop.turnworker():
        turn = backed_off(shop.clerks["responses"].start("Are you there?"))
        assert turn.run_after - turn.steps.get().started_at >= timedelta(seconds=3)
        turn = until_it_rests(turn)

    assert (turn.status, turn.answer) == ("completed", "Now.")
    assert len(llmock.requests()) == 2
    assert llmock.verdict()["findings"] == []


def test_a_refused_key_parks_the_turn_with_a_sentence_and_a_retry_asks_again(
    open_shop: OpenShop, llmock: LLMock
) -> None:
    shop = open_shop(llmock.openai_url)
    llmock.script({"type": "fail", "status": 401}, {"type": "reply", "text": "Welcome."})
    with shop.turnworker():
        turn = until_it_rests(shop.clerks["responses"].start("Are you there?"))
        assert (turn.status, turn.park_reason, turn.error_code) == ("parked", "provider_error", "invalid_api_key")
        assert turn.waiting_for == (
            "The provider 'responses' answered 401 (invalid_api_key): Unauthorized. Set OPENAI_API_KEY or "
            "OPTIONS['api_key'] to a valid key, then retry the turn."
        )
        assert len(llmock.requests()) == 1

        turn = until_it_rests(turn.retry(reason="The key is mended."))

    assert (turn.status, turn.answer) == ("completed", "Welcome.")
    assert len(llmock.requests()) == 2
