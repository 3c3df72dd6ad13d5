"""Ends a connection at a given moment, whatever comes: a socket's own time-out starts anew with every piece."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any


class HangUp:
    """Shuts down the socket under a response at the moment set last. Leaving the ``with`` block takes that back."""

    def __init__(self, response: Any) -> None:
        stream = response.extensions.get("network_stream")
        self._socket: socket.socket | None = stream.get_extra_info("socket") if stream is not None else None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> HangUp:
        return self

    def __exit__(self, *_: object) -> None:
        self._take_back()

    def at(self, moment: float) -> None:
        """``moment`` is on the monotonic clock, in seconds."""
        self._take_back()
        if self._socket is not None:
            self._timer = threading.Timer(max(0.0, moment - time.monotonic()), _shut_down, [self._socket])
            self._timer.daemon = True
            self._timer.start()

    def _take_back(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _shut_down(connection: socket.socket) -> None:
    # It may have been closed meanwhile, which is as good.
    with contextlib.suppress(OSError, ValueError):
        connection.shutdown(socket.SHUT_RDWR)
