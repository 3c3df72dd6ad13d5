"""Whole conversations with a mock of the vendors that knows nothing of us."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentturns.providers.anthropic import Anthropic
from agentturns.providers.base import Fault, Message, ProviderError
from agentturns.providers.openai import OpenAI
from agentturns.providers.remote import RemoteProvider
from tests.llmock_server import LLMock
from tests.providers.conversations import HELLO, asked, replayed, results

Make = Callable[[LLMock], RemoteProvider]
WIRES: dict[str, tuple[Make, str]] = {
    "responses": (lambda mock: OpenAI("it", base_url=mock.openai_url, api_key="any-text"), "input"),
    "chat": (lambda mock: OpenAI("it", base_url=mock.openai_url, api_key="any-text", api="chat"), "messages"),
    "messages": (lambda mock: Anthropic("it", base_url=mock.anthropic_url, api_key="any-text"), "messages"),
}
every_wire = pytest.mark.parametrize(("make", "conversation_key"), WIRES.values(), ids=WIRES.keys())


@every_wire
def test_a_conversation_with_two_calls_and_an_answer(llmock: LLMock, make: Make, conversation_key: str) -> None:
    provider = make(llmock)
    calls = [{"name": "look_up", "arguments": {"order": number}} for number in (7, 8)]
    llmock.script({"type": "reply", "text": "Let me look.", "tool_calls": calls}, {"type": "reply", "text": "Lost."})
    conversation: list[Message] = [HELLO]

    first = provider.call(asked(provider, conversation), timeout=10)
    assert first.complete and [call.name for call in first.tool_calls] == ["look_up", "look_up"]
    said = replayed(first, provider.flavour)
    conversation += [said, results(said, "lost", "lost", notice="2 calls left.")]
    second = provider.call(asked(provider, conversation), timeout=10)

    assert (second.text, second.complete, second.tool_calls) == ("Lost.", True, ())
    shorter, longer = (body[conversation_key] for body in llmock.bodies())
    assert longer[: len(shorter)] == shorter and len(longer) > len(shorter)


@every_wire
def test_a_rate_limit_is_one_request_and_its_wait(llmock: LLMock, make: Make, conversation_key: str) -> None:
    provider = make(llmock)
    llmock.script({"type": "fail", "status": 429, "retry_after": 7})
    with pytest.raises(ProviderError) as raised:
        provider.call(asked(provider), timeout=10)
    assert (raised.value.fault, raised.value.retry_after) == (Fault.RATE_LIMITED, 7)
    assert len(llmock.requests()) == 1


@every_wire
@pytest.mark.parametrize(("status", "fault"), [(401, Fault.PERMANENT), (500, Fault.TRANSIENT), (529, Fault.TRANSIENT)])
def test_a_failure_is_its_fault(llmock: LLMock, make: Make, conversation_key: str, status: int, fault: Fault) -> None:
    provider: Any = make(llmock)
    llmock.script({"type": "fail", "status": status})
    with pytest.raises(ProviderError) as raised:
        provider.call(asked(provider), timeout=10)
    assert raised.value.fault == fault


@every_wire
def test_broken_arguments_of_a_model_do_not_break_the_next_request(
    llmock: LLMock, make: Make, conversation_key: str
) -> None:
    provider = make(llmock)
    llmock.script(
        {"type": "reply", "tool_calls": [{"name": "look_up", "arguments": {"order": 7}}]},
        {"type": "tool_fault", "kind": "malformed_arguments"},
        {"type": "reply", "text": "Sorry."},
    )
    first = provider.call(asked(provider), timeout=10)
    said = replayed(first, provider.flavour)
    answered = provider.call(asked(provider, [HELLO, said, results(said, "not valid", failed=True)]), timeout=10)
    assert answered.text == "Sorry."
