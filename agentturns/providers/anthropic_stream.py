"""A streamed reply on Anthropic's Messages wire, put together block by block."""

from __future__ import annotations

import json
from typing import Any

from agentturns.providers.anthropic_messages import usage_of
from agentturns.providers.base import Usage
from agentturns.providers.gathering import Gathering
from agentturns.providers.reading import mapping, no_json


class GatheredMessage(Gathering):
    """The message of the first event, its blocks filled by the following ones."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._arguments: dict[int, list[str]] = {}

    def _take(self, event: dict[str, Any]) -> None:
        index = event.get("index")
        place = index if isinstance(index, int) else len(self._blocks)
        match event.get("type"):
            case "message_start":
                self.begun = True
                self._message = mapping(event.get("message"))
            case "content_block_start":
                self._blocks[place] = block = mapping(event.get("content_block"))
                if block.get("type") == "text" and block.get("text"):
                    self._said(block["text"])
            case "content_block_delta":
                self._fill(place, mapping(event.get("delta")))
            case "message_delta":
                self._close(event)
            case "message_stop":
                self.finished = True

    def _fill(self, place: int, delta: dict[str, Any]) -> None:
        block = self._blocks.setdefault(place, {})
        match delta.get("type"):
            case "text_delta":
                self._said(delta.get("text"))
            case "input_json_delta":
                self._wrote(delta.get("partial_json"))
                self._arguments.setdefault(place, []).append(str(delta.get("partial_json") or ""))
                return
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or []), delta.get("citation")]
                return
            case "thinking_delta":
                self._wrote(delta.get("thinking"))
        # Blocks that are yet to be invented grow the same way.
        for key, value in delta.items():
            before = block.get(key)
            if key == "type" or value is None:
                continue
            grows = isinstance(before, str) and isinstance(value, str) and key != "signature"
            block[key] = before + value if grows else value

    def _close(self, event: dict[str, Any]) -> None:
        self._message |= mapping(event.get("delta"))
        self.ended = bool(self._message.get("stop_reason"))
        # Counts are of the whole message so far, so a later one replaces an earlier one.
        told = {key: value for key, value in mapping(event.get("usage")).items() if value is not None}
        self._message["usage"] = {**mapping(self._message.get("usage")), **told}

    def _whole(self) -> dict[str, Any]:
        return {**self._message, "content": [self._block(place) for place in sorted(self._blocks)]}

    def _block(self, place: int) -> dict[str, Any]:
        block, written = self._blocks[place], "".join(self._arguments.get(place, ()))
        if not written:
            return block
        try:
            return {**block, "input": json.loads(written, parse_constant=no_json)}
        except (ValueError, RecursionError):
            # Kept as it was written: the reply is read as one with arguments that are not valid.
            return {**block, "input": written}

    def _usage(self) -> Usage:
        return usage_of(mapping(self._message.get("usage")))
