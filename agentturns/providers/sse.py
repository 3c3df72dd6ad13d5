"""Server-sent events, read as they arrive."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterator


class EventReader:
    """Cuts the bytes of an event stream into the data of its events, wherever the pieces happen to end."""

    def __init__(self) -> None:
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=True)
        self._line = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of every event that ``piece`` completes. Raises ``UnicodeDecodeError`` for what is no UTF-8."""
        *lines, self._line = (self._line + self._decoder.decode(piece)).split("\n")
        for line in lines:
            if line:
                self._field(line)
            elif self._data:
                yield self._event()

    def rest(self) -> Iterator[str]:
        """The last event of a stream that ends without its empty line, unless it is cut."""
        self._field(self._line)
        self._line = ""
        if self._data and _is_json(data := self._event()):
            yield data

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))

    def _event(self) -> str:
        data, self._data = "\n".join(self._data), []
        return data


def _is_json(data: str) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
