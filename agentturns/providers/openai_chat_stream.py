"""A streamed reply on the Chat Completions wire, put together from its chunks, also where servers take liberties."""

from __future__ import annotations

from typing import Any, Final

from agentturns.providers.base import Usage
from agentturns.providers.gathering import Gathering
from agentturns.providers.openai_chat import usage_of
from agentturns.providers.reading import mapping, mappings

# Said once: a server that repeats them in every chunk does not mean them to be joined.
SAID_ONCE: Final = ("role", "id", "type", "name", "format", "index")
# Of a stream and not of a reply, or put together apart.
APART: Final = ("object", "choices", "usage")


class GatheredCompletion(Gathering):
    """The first choice of the stream as the message it becomes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._head: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant"}
        self._calls: list[dict[str, Any]] = []
        self._places: dict[int, int] = {}
        self._usage_told: dict[str, Any] = {}

    def _take(self, event: dict[str, Any]) -> None:
        self.begun = True
        self._head |= {key: value for key, value in event.items() if value is not None and key not in APART}
        # Some servers tell the usage with every chunk, each time of all so far.
        self._usage_told = mapping(event.get("usage")) or self._usage_told
        for choice in mappings(event.get("choices")):
            if choice.get("index") in (0, None):
                self._take_choice(choice)

    def _take_choice(self, choice: dict[str, Any]) -> None:
        for key in ("finish_reason", "error"):
            if choice.get(key):
                self._choice[key] = choice[key]
        self.ended = bool(self._choice)
        # Where a server sends the whole message at last, it comes in place of a delta.
        delta = mapping(choice.get("delta")) or mapping(choice.get("message"))
        self._said(delta.get("content"))
        for key in ("reasoning_content", "reasoning", "refusal"):
            self._wrote(delta.get(key))
        _merge(self._message, {key: value for key, value in delta.items() if key != "tool_calls"})
        for call in mappings(delta.get("tool_calls")):
            self._take_call(call)

    def _take_call(self, delta: dict[str, Any]) -> None:
        index = delta.get("index")
        place = self._places.get(index) if isinstance(index, int) else len(self._calls) - 1
        if place is None or place < 0 or _begins_anew(self._calls[place], delta):
            place = len(self._calls)
            self._calls.append({})
        if isinstance(index, int):
            self._places[index] = place
        call, function = self._calls[place], mapping(delta.get("function"))
        self._wrote(function.get("arguments"))
        _merge(call, {key: value for key, value in delta.items() if key not in ("index", "function")})
        _merge(call.setdefault("function", {}), function)

    def _whole(self) -> dict[str, Any]:
        message = {**self._message, **({"tool_calls": self._calls} if self._calls else {})}
        choice = {"index": 0, "message": message, **self._choice}
        told = {"usage": self._usage_told} if self._usage_told else {}
        return {**self._head, "object": "chat.completion", "choices": [choice], **told}

    def _usage(self) -> Usage:
        return usage_of(self._usage_told)


def _begins_anew(call: dict[str, Any], delta: dict[str, Any]) -> bool:
    """Whether ``delta`` is another call than ``call``: servers without a use for the index give all of them 0."""
    other_id = bool(delta.get("id")) and delta["id"] != call.get("id")
    named_again = bool(mapping(delta.get("function")).get("name")) and bool(mapping(call.get("function")).get("name"))
    return named_again and (other_id or (not delta.get("id") and "index" not in delta))


def _merge(into: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add ``delta`` to what came before it: texts and lists grow, objects are merged, the rest is replaced."""
    for key, value in delta.items():
        before = into.get(key)
        if value is None or (key in SAID_ONCE and before):
            continue
        if isinstance(value, str) and isinstance(before, str):
            into[key] = before + value
        elif isinstance(value, dict) and isinstance(before, dict):
            _merge(before, value)
        elif isinstance(value, list) and isinstance(before, list):
            for item in value:
                _merge_item(before, item)
        else:
            into[key] = value


def _merge_item(items: list[Any], item: Any) -> None:
    """Add to a list: to the item of the same index where items have one, else at its end."""
    index = mapping(item).get("index")
    same = [known for known in items if index is not None and mapping(known).get("index") == index]
    if same:
        _merge(same[0], item)
    else:
        items.append(item)
