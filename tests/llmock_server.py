"""A mock of the vendors' servers in a process of its own, for tests that go over the wire."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

START_SECONDS = 30


@dataclass(frozen=True)
class LLMock:
    """The running server: where it is, what it shall say, what it was asked."""

    url: str

    @property
    def openai_url(self) -> str:
        """``base_url`` for OpenAI's wires."""
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        """``base_url`` for Anthropic's wire."""
        return f"{self.url}/anthropic"

    def script(self, *behaviors: dict[str, Any]) -> None:
        """Queue behaviours, such as ``{"type": "reply", "text": "hi"}``.

        Each request takes the next of each kind, so a ``fail`` comes before replies that were queued earlier.
        """
        self._ask("POST", "/_llmock/scenario", {"behaviors": list(behaviors)})

    def requests(self) -> list[dict[str, Any]]:
        """Every request served, oldest first, with its parsed ``body``."""
        return self._ask("GET", "/_llmock/requests")["requests"]

    def bodies(self) -> list[dict[str, Any]]:
        """The JSON bodies of :meth:`requests`."""
        return [request["body"] for request in self.requests()]

    def verdict(self) -> dict[str, Any]:
        """How well the client behaved: retry storms, ignored Retry-After."""
        return self._ask("GET", "/_llmock/verdict")

    def reset(self) -> None:
        """Forget requests and queued behaviours."""
        self._ask("POST", "/_llmock/reset")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)


@contextmanager
def running_llmock() -> Iterator[LLMock]:
    """Start the server on a free port, and stop it afterwards."""
    port = _free_port()
    serve = f"from llmock.cli import app; app(['serve', '--port', '{port}', '--log-level', 'warning'])"
    process = subprocess.Popen([sys.executable, "-c", serve], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        _wait_until_open(port, process)
        yield LLMock(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"llmock ended with code {process.returncode} while starting.")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"llmock did not open port {port} within {START_SECONDS} seconds.")
