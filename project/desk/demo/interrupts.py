"""Ctrl-C, SIGTERM and a closed terminal: each ends the demo the same way, through its ``finally`` blocks."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_held: list[list[int]] = []  # one list of signals for each block, the outermost first, that holds them back


class Interrupted(BaseException):
    """Somebody stops the demo. ``signal`` is the signal that said so."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.signal = signal.Signals(number)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise ``Interrupted`` for the first stop signal inside the block; later ones do not disturb the cleaning up."""
    before = {each: signal.getsignal(each) for each in STOP_SIGNALS}
    # SIGHUP that was ignored when we started, as under nohup, stays so; SIGINT is heeded even where a shell ignored it
    # for a background job.
    heeded = [each for each, handler in before.items() if handler is not signal.SIG_IGN or each is not signal.SIGHUP]
    for each in heeded:
        signal.signal(each, _interrupt)
    try:
        yield
    finally:
        for each in heeded:
            signal.signal(each, before[each])


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a stop signal that comes inside the block wait until its end."""
    _held.append([])
    try:
        yield
    finally:
        waiting = _held.pop()
        if waiting:
            raise Interrupted(waiting[0])


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in STOP_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    if _held:
        _held[0].append(number)
    else:
        raise Interrupted(number)
