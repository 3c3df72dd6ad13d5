"""How a demo fails: with a sentence for a person."""

from __future__ import annotations


class DemoFailed(Exception):
    """The demo could not show what it is to show. The message is a sentence; ``log`` the end of a process's log."""

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log
