"""A vendor that speaks Chat Completions: its answers, whose usage costs a known amount, a call that hangs, a return."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.wire_server import Answered, answer

INPUT_TOKENS: Final = 1000
OUTPUT_TOKENS: Final = 100
# Of gpt-5-mini: $0.25 a million tokens of input, $2 of output.
REPLY_COST: Final = Decimal("0.00045")

ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "look_up": {"order_number": "A-1001"},
    "issue_refund": {"order_number": "A-1001", "amount_pence": 1800},
    "send_letter": {"text": "Your refund is on its way."},
}


class Hanging(threading.Event):
    """For the ``hold`` of an answer: ``reached`` is set as soon as a request waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.reached.set()
        return super().wait(timeout)


def says(text: str, *, hold: Hanging | None = None) -> Answered:
    """A last reply."""
    return _reply({"role": "assistant", "content": text}, "stop", hold)


def asks_for(*tools: str) -> Answered:
    """A reply that asks for one call of each of ``tools``, with the usual arguments."""
    functions = [{"name": tool, "arguments": json.dumps(ARGUMENTS[tool])} for tool in tools]
    calls = [{"id": f"call_{n}", "type": "function", "function": function} for n, function in enumerate(functions, 1)]
    return _reply({"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls", None)


@contextmanager
def back_up(port: int, answered: Answered) -> Iterator[list[bytes]]:
    """The vendor of a port where nobody listened, which gives one answer to everything; yields the requests' bodies."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(answered.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answered.body)))
            self.end_headers()
            self.wfile.write(answered.body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield bodies
        finally:
            server.shutdown()
            thread.join()


def _reply(message: dict[str, Any], finish_reason: str, hold: Hanging | None) -> Answered:
    return answer(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-5-mini",
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": {
                "prompt_tokens": INPUT_TOKENS,
                "completion_tokens": OUTPUT_TOKENS,
                "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
            },
        },
        hold=hold,
    )
