"""The servers that provider tests speak to, all on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.llmock_server import LLMock, running_llmock
from tests.wire_server import WireServer, running_wire_server


@pytest.fixture(scope="session")
def llmock_process() -> Iterator[LLMock]:
    with running_llmock() as server:
        yield server


@pytest.fixture
def llmock(llmock_process: LLMock) -> LLMock:
    """The mock of all vendors, with nothing queued and nothing recorded."""
    llmock_process.reset()
    return llmock_process


@pytest.fixture(scope="session")
def wire_thread() -> Iterator[WireServer]:
    with running_wire_server() as server:
        yield server


@pytest.fixture
def wire(wire_thread: WireServer) -> WireServer:
    """A server that answers with the very bytes a test wrote, with nothing scripted and nothing recorded."""
    wire_thread.reset()
    return wire_thread


@pytest.fixture(autouse=True)
def no_keys_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads a key, or the address of a server, that this machine happens to have."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
