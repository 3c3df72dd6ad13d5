"""A loopback server that answers with exactly the bytes it is told, for what a mock of a vendor cannot be told."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Recorded:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Answered:
    """One answer. With ``cut_at`` the connection breaks after so many bytes of the body; ``drip_seconds`` waits
    between its bytes; ``hold`` is waited for before anything is said, or after ``hold_at`` bytes of the body. A body
    that is not ``sized`` ends where its connection does, so that nobody can tell whether it was cut."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut_at: int | None = None
    drip_seconds: float = 0
    hold: threading.Event | None = None
    hold_at: int | None = None
    sized: bool = True


def answer(
    body: Any = b"",
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    cut_at: int | None = None,
    drip_seconds: float = 0,
    hold: threading.Event | None = None,
    hold_at: int | None = None,
    sized: bool = True,
) -> Answered:
    """An answer; ``body`` is bytes, text, or what is sent as JSON."""
    raw = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    kind = headers or {"Content-Type": "application/json"}
    return Answered(status, kind, raw, cut_at, drip_seconds, hold, hold_at, sized)


def stream(body: str | bytes, **more: Any) -> Answered:
    """An answer of server-sent events, which like most of its kind does not say how long it is."""
    return answer(body, headers={"Content-Type": "text/event-stream"}, **{"sized": False, **more})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with the usual 5, connections of many threads at once are dropped

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that hangs up is what some tests are about
            super().handle_error(request, client_address)


class WireServer:
    """Gives its answers in order, the last one again and again, and keeps every request."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        self._answers: list[Answered] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        """The root address, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def script(self, *answers: Answered) -> None:
        """What to answer from now on."""
        with self._lock:
            self._answers = list(answers)

    def reset(self) -> None:
        """Forget the answers and the requests."""
        with self._lock:
            self._answers, self.requests = [], []

    def _next(self, request: Recorded) -> Answered:
        with self._lock:
            self.requests.append(request)
            return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        wire = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                given = wire._next(Recorded(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                if given.hold is not None and given.hold_at is None:
                    given.hold.wait(30)
                self.close_connection = True
                self.send_response(given.status)
                for name, value in given.headers.items():
                    self.send_header(name, value)
                if given.sized:
                    self.send_header("Content-Length", str(len(given.body)))
                self.send_header("Connection", "close")
                self.end_headers()
                self._write(given)

            def _write(self, given: Answered) -> None:
                body = given.body[: given.cut_at]
                if given.hold is not None and given.hold_at is not None:
                    self.wfile.write(body[: given.hold_at])
                    self.wfile.flush()
                    given.hold.wait(30)
                    body = body[given.hold_at :]
                if not given.drip_seconds:
                    self.wfile.write(body)
                    return
                try:
                    for index in range(len(body)):
                        self.wfile.write(body[index : index + 1])
                        self.wfile.flush()
                        if wire._stopped.wait(given.drip_seconds):
                            return
                except OSError:  # the client has had enough
                    return

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@contextmanager
def running_wire_server() -> Iterator[WireServer]:
    """Start the server on a free port, and stop it afterwards."""
    server = WireServer()
    server._thread.start()
    try:
        yield server
    finally:
        server._stopped.set()
        server._server.shutdown()
        server._server.server_close()
        server._thread.join(10)
