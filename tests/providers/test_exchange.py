"""Over the wire, through the real SDKs: one request a call, the reply as it came, every failure a fault."""

from __future__ import annotations

import json
import socket
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from agentturns.providers.anthropic import Anthropic
from agentturns.providers.base import Fault, ModelReply, ProviderError, UserMessage
from agentturns.providers.openai import OpenAI
from agentturns.providers.remote import RemoteProvider
from tests.providers.conversations import asked
from tests.wire_server import WireServer, answer

KEY = "sk-loopback-1234567890"
# Odd on purpose: spaces, an escaped letter, an unknown key, keys in no usual order. All of it must stay.
RESPONSES = (
    '{ "status":"completed", "output":[{"type":"message","content":[{"type":"output_text","text":"caf\\u00e9"}]}],'
    ' "odd": 1e2, "id":"resp_1", "model":"m", "usage":{"input_tokens":3,"output_tokens":2} }'
)
CHAT = (
    '{ "choices":[{"finish_reason":"stop","message":{"content":"caf\\u00e9","role":"assistant"}}], "odd": 1e2,'
    ' "id":"chatcmpl-1", "model":"m", "usage":{"prompt_tokens":3,"completion_tokens":2} }'
)
MESSAGES = (
    '{ "stop_reason":"end_turn", "content":[{"type":"text","text":"caf\\u00e9"}], "odd": 1e2, "id":"msg_1",'
    ' "model":"m", "usage":{"input_tokens":3,"output_tokens":2} }'
)

Make = Callable[..., RemoteProvider]
WIRES: dict[str, tuple[Make, str, str]] = {
    "responses": (lambda url, **more: OpenAI("it", base_url=f"{url}/v1", **more), "/v1/responses", RESPONSES),
    "chat": (
        lambda url, **more: OpenAI("it", base_url=f"{url}/v1", api="chat", **more),
        "/v1/chat/completions",
        CHAT,
    ),
    "messages": (lambda url, **more: Anthropic("it", base_url=url, **more), "/v1/messages", MESSAGES),
}
every_wire = pytest.mark.parametrize(("make", "path", "body"), WIRES.values(), ids=WIRES.keys())


def call(provider: RemoteProvider, *, timeout: float = 5, **fields: Any) -> ModelReply:
    return provider.call(asked(provider, **fields), timeout=timeout)


def failed(provider: RemoteProvider, *, timeout: float = 5) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        call(provider, timeout=timeout)
    # A log shows the whole chain of causes, and the SDKs' own exceptions may hold the key.
    assert KEY not in "".join(traceback.format_exception(raised.value))
    return raised.value


@every_wire
def test_the_reply_is_kept_to_the_byte(wire: WireServer, make: Make, path: str, body: str) -> None:
    wire.script(answer(body))
    reply = call(make(wire.url, api_key=KEY))
    assert reply.wire == body
    assert (reply.text, reply.complete) == ("café", True)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 2)


@every_wire
def test_a_call_is_one_request_with_the_rendered_body(wire: WireServer, make: Make, path: str, body: str) -> None:
    wire.script(answer(body))
    provider = make(wire.url, api_key=KEY, headers={"X-Team": "refunds"})
    call(provider)
    (request,) = wire.requests
    assert request.path == path
    assert request.json == provider.render(asked(provider))
    assert KEY in request.headers.get("authorization", "") + request.headers.get("x-api-key", "")
    assert request.headers["x-team"] == "refunds"


@every_wire
def test_equal_requests_are_equal_bytes(wire: WireServer, make: Make, path: str, body: str) -> None:
    wire.script(answer(body))
    for _ in range(2):
        call(make(wire.url, api_key=KEY), messages=[UserMessage("Größe “7” – ☂")])
    assert wire.requests[0].body == wire.requests[1].body
    assert "Größe “7” – ☂".encode() in wire.requests[0].body


@every_wire
@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
def test_no_sdk_retries_by_itself(wire: WireServer, make: Make, path: str, body: str, status: int) -> None:
    wire.script(answer({"error": {"message": "Busy."}}, status=status, headers={"Retry-After": "0"}))
    assert failed(make(wire.url, api_key=KEY)).fault in (Fault.TRANSIENT, Fault.RATE_LIMITED)
    assert len(wire.requests) == 1


@every_wire
def test_a_refusal_brings_its_wait_and_its_words(wire: WireServer, make: Make, path: str, body: str) -> None:
    busy = {"error": {"type": "rate_limit_error", "message": f"Too many requests with {KEY}."}}
    wire.script(answer(busy, status=429, headers={"Retry-After": "7"}))
    error = failed(make(wire.url, api_key=KEY))
    assert (error.fault, error.retry_after, error.billed) == (Fault.RATE_LIMITED, 7.0, False)
    assert str(error) == "The provider 'it' answered 429 (rate_limit_error): Too many requests with [key]."


@every_wire
@pytest.mark.parametrize("header", ["x-request-id", "request-id"])
def test_the_vendors_request_id_is_kept(wire: WireServer, make: Make, path: str, body: str, header: str) -> None:
    wire.script(answer(body, headers={header: "req_42"}), answer(body))
    provider = make(wire.url, api_key=KEY)
    assert call(provider).request_id == "req_42"
    assert call(provider).request_id == json.loads(body)["id"]


@every_wire
def test_a_web_page_with_status_200_is_a_fault(wire: WireServer, make: Make, path: str, body: str) -> None:
    wire.script(answer("<html><title>Sign in</title></html>", headers={"Content-Type": "text/html"}))
    error = failed(make(wire.url, api_key=KEY))
    assert (error.fault, error.code, error.billed) == (Fault.TRANSIENT, "html_page", False)


@every_wire
@pytest.mark.parametrize("said", ["", "null", "[]", "NaN", '{"id": "x"', b"\xff\xfe", "[" * 100_000])
def test_something_else_than_a_reply_is_a_fault(
    wire: WireServer, make: Make, path: str, body: str, said: str | bytes
) -> None:
    wire.script(answer(said))
    error = failed(make(wire.url, api_key=KEY))
    assert (error.fault, error.billed) == (Fault.TRANSIENT, True)


@every_wire
def test_a_connection_lost_in_the_reply_may_have_been_billed(
    wire: WireServer, make: Make, path: str, body: str
) -> None:
    wire.script(answer(body, cut_at=20))
    error = failed(make(wire.url, api_key=KEY))
    assert (error.fault, error.code, error.billed) == (Fault.TRANSIENT, "connection_lost", True)


@every_wire
def test_a_server_that_does_not_answer_in_time_may_have_billed(
    wire: WireServer, make: Make, path: str, body: str
) -> None:
    hold = threading.Event()
    wire.script(answer(body, hold=hold))
    error = failed(make(wire.url, api_key=KEY), timeout=0.2)
    hold.set()
    assert (error.fault, error.code, error.billed) == (Fault.TRANSIENT, "timeout", True)
    assert str(error) == "The provider 'it' did not answer within 0.2 seconds."


@every_wire
def test_the_timeout_holds_for_a_reply_that_drips(wire: WireServer, make: Make, path: str, body: str) -> None:
    wire.script(answer(body, drip_seconds=0.05))
    started = time.monotonic()
    error = failed(make(wire.url, api_key=KEY), timeout=0.3)
    assert error.code == "timeout"
    assert time.monotonic() - started < 2


@every_wire
def test_a_server_that_cannot_be_reached_has_billed_nothing(make: Make, path: str, body: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        error = failed(make(f"http://127.0.0.1:{closed.getsockname()[1]}", api_key=KEY))
    assert (error.fault, error.code, error.billed) == (Fault.TRANSIENT, "unreachable", False)
    assert "cannot be reached: ConnectionRefusedError" in str(error) or "cannot be reached: ConnectError" in str(error)


@every_wire
def test_an_address_that_is_none_is_told(make: Make, path: str, body: str) -> None:
    error = failed(make("ftp://127.0.0.1", api_key=KEY))
    assert (error.fault, error.code) == (Fault.PERMANENT, "invalid_base_url")


@every_wire
def test_a_missing_key_is_told_by_name_and_nothing_is_sent(wire: WireServer, make: Make, path: str, body: str) -> None:
    wire.script(answer(body))
    provider = make(wire.url)
    error = failed(provider)
    assert (error.fault, error.code, error.billed) == (Fault.PERMANENT, "missing_key", False)
    assert f"set the environment variable {provider.KEY_VARIABLE}, or OPTIONS['api_key']" in str(error)
    assert provider.problems() and provider.problems()[0] in str(error)
    assert not wire.requests


@every_wire
def test_a_key_is_read_from_the_environment_at_each_call(
    wire: WireServer, make: Make, path: str, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.script(answer(body))
    provider = make(wire.url)
    for key in (KEY, f"{KEY}-rotated"):
        monkeypatch.setenv(provider.KEY_VARIABLE, key)
        call(provider)
        sent = wire.requests[-1].headers
        assert key in (sent.get("authorization", "").removeprefix("Bearer "), sent.get("x-api-key", ""))
    assert provider.problems() == []


@every_wire
def test_a_turn_of_another_wire_is_told_how_to_go_on(wire: WireServer, make: Make, path: str, body: str) -> None:
    with pytest.raises(ProviderError, match="this turn was begun as 'scripted'") as raised:
        call(make(wire.url, api_key=KEY), flavour="scripted")
    assert raised.value.fault == Fault.PERMANENT


@every_wire
def test_threads_share_one_provider(wire: WireServer, make: Make, path: str, body: str) -> None:
    wire.script(answer(body))
    provider = make(wire.url, api_key=KEY)
    heard: list[str] = []
    threads = [threading.Thread(target=lambda: heard.append(call(provider).text)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == ["café"] * 16
    assert len(wire.requests) == 16


@every_wire
def test_the_text_is_handed_on(wire: WireServer, make: Make, path: str, body: str) -> None:
    wire.script(answer(body))
    provider, heard = make(wire.url, api_key=KEY), []
    provider.call(asked(provider), timeout=5, on_text=heard.append)
    assert heard == ["café"]
