"""A streamed reply on the Responses wire: its last event holds all of it."""

from __future__ import annotations

from typing import Any, Final

from agentturns.providers.base import Usage
from agentturns.providers.gathering import Gathering
from agentturns.providers.openai_responses import usage_of
from agentturns.providers.reading import mapping

LAST: Final = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


class GatheredResponse(Gathering):
    """Keeps the response of the last event, and its items in case that one leaves them out."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._response: dict[str, Any] = {}
        self._items: dict[int, Any] = {}

    def _error_in(self, event: dict[str, Any]) -> Any:
        return (event.get("error") or event) if event.get("type") == "error" else super()._error_in(event)

    def _take(self, event: dict[str, Any]) -> None:
        self.begun = True
        kind = event.get("type")
        match kind:
            case "response.output_text.delta":
                self._said(event.get("delta"))
            case "response.output_item.done":
                index = event.get("output_index")
                self._items[index if isinstance(index, int) else len(self._items)] = event.get("item")
            case str() if kind.endswith(".delta"):
                self._wrote(event.get("delta"))
        if isinstance(event.get("response"), dict):
            self._response = event["response"]
        if kind in LAST:
            self.ended = self.finished = True

    def _whole(self) -> dict[str, Any]:
        if self._items and not self._response.get("output"):
            return {**self._response, "output": [self._items[index] for index in sorted(self._items)]}
        return self._response

    def _usage(self) -> Usage:
        return usage_of(mapping(self._response.get("usage")))
