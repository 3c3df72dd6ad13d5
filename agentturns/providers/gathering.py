"""A streamed reply, put together into the JSON text that the same reply has when it comes whole."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from agentturns.cleaning import clean_text
from agentturns.providers.base import ProviderError, Usage
from agentturns.providers.faults import Endpoint, cut_off, error_inside, malformed, unreadable
from agentturns.providers.replay import compact

DONE: Final = "[DONE]"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_FIRST_HALF: Final = re.compile("[\ud800-\udbff]$")
# What a broken-off reply wrote is reckoned on the high side: two bytes a token.
BYTES_PER_TOKEN: Final = 2


class Gathering(ABC):
    """One streamed reply. Text is offered to ``on_text`` as it comes; nothing is kept but what the reply needs."""

    def __init__(self, endpoint: Endpoint, on_text: Callable[[str], None] | None = None) -> None:
        self.endpoint = endpoint
        self.begun = False
        self.ended = False
        self.finished = False
        self._on_text = on_text
        self._held = ""
        self._written = 0

    def hear(self, data: str) -> None:
        """Take in one event. Raises ``ProviderError`` for one that reports a failure or is not JSON."""
        if data.strip() == DONE:
            self.finished = True
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            raise unreadable(self.endpoint, data) from None
        if not isinstance(event, dict):
            raise malformed(self.endpoint, "has an event that is no JSON object")
        if (error := self._error_in(event)) is not None:
            # A refusal in the place of the first event came before any work.
            raise error_inside(self.endpoint, error, billed=self.begun)
        self._take(event)

    def wire(self) -> str:
        """The reply as one JSON text. Raises ``ProviderError`` where it broke off."""
        if not self.ended:
            raise self.failed(cut_off(self.endpoint))
        return compact(_mended(self._whole()))

    def failed(self, error: ProviderError) -> ProviderError:
        """``error`` with the usage seen so far, as far as the input is known."""
        seen = self._usage()
        if seen.input_tokens is not None:
            written = 0 if self.ended else math.ceil(self._written / BYTES_PER_TOKEN)
            error.usage = replace(seen, output_tokens=max(seen.output_tokens or 0, written))
        return error

    @abstractmethod
    def _take(self, event: dict[str, Any]) -> None:
        """Add an event to the reply; sets ``begun``, ``ended`` (the reason for the end is known), ``finished``."""

    @abstractmethod
    def _whole(self) -> dict[str, Any]:
        """The reply so far."""

    @abstractmethod
    def _usage(self) -> Usage:
        """The usage reported so far."""

    def _error_in(self, event: dict[str, Any]) -> Any:
        return event.get("error") or None

    def _wrote(self, piece: Any) -> None:
        """The model wrote ``piece``, for people or not."""
        if isinstance(piece, str):
            self._written += len(piece.encode(errors="replace"))

    def _said(self, piece: Any) -> None:
        """The model wrote ``piece`` for people."""
        self._wrote(piece)
        if self._on_text is None or not isinstance(piece, str):
            return
        text = self._held + piece
        # A character outside the basic plane may come as two escapes in two events.
        self._held = found[0] if (found := _FIRST_HALF.search(text)) else ""
        if text := text.removesuffix(self._held):
            self._on_text(clean_text(_joined(text)))


def _mended(value: Any) -> Any:
    """``value`` with characters whose halves came in two events made whole, and lone halves replaced."""
    if isinstance(value, str):
        return _joined(value)
    if isinstance(value, dict):
        return {_joined(key): _mended(item) for key, item in value.items()}
    return [_mended(item) for item in value] if isinstance(value, list) else value


def _joined(text: str) -> str:
    if not _SURROGATE.search(text):
        return text
    return clean_text(text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")) if text else text
