"""A model that says what a test or a demo wrote down for it: no network, no key, known costs."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar

from agentturns.providers.base import (
    AssistantMessage,
    Fault,
    Message,
    ModelReply,
    ModelRequest,
    Provider,
    ProviderError,
    ToolRequest,
    ToolResults,
    Usage,
    UserMessage,
)
from agentturns.providers.replay import replayed_arguments

WHOLE = ("stop", "tool_calls")


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted reply; see :func:`reply`."""

    text: str
    tool_calls: tuple[tuple[str, str], ...]
    input_tokens: int | None
    output_tokens: int | None
    cached_input_tokens: int | None
    cost: Decimal | None
    delay: float
    stop_reason: str


def reply(
    text: str = "",
    tool_calls: Iterable[tuple[str, Mapping[str, Any] | str]] = (),
    input_tokens: int | None = 0,
    output_tokens: int | None = 0,
    cost: Decimal | int | str | None = Decimal(0),
    delay: float = 0,
    stop_reason: str | None = None,
    cached_input_tokens: int | None = None,
) -> Reply:
    """What a scripted model says once.

    ``tool_calls`` are ``(name, arguments)`` pairs, the arguments a dict, or text to send as it is. ``cost`` is USD,
    None for a reply without a known price; tokens are None where the provider shall not say. ``delay`` is in seconds.
    A ``stop_reason`` other than ``"stop"`` and ``"tool_calls"`` makes a cut reply, whose tool calls must not run.
    """
    if isinstance(cost, bool | float):
        raise TypeError(f"reply: cost={cost!r} is a {type(cost).__name__}; write Decimal({str(cost)!r}) or the text.")
    calls = tuple(
        (name, arguments if isinstance(arguments, str) else json.dumps(arguments)) for name, arguments in tool_calls
    )
    return Reply(
        text=text,
        tool_calls=calls,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_input_tokens=cached_input_tokens,
        cost=None if cost is None else Decimal(cost),
        delay=delay,
        stop_reason=stop_reason or ("tool_calls" if calls else "stop"),
    )


class ScriptedRequest:
    """One request as a scripted model got it. ``state`` is the running turn's ``TurnState``."""

    def __init__(self, request: ModelRequest) -> None:
        self.model = request.model
        self.instructions = request.instructions
        self.tools: list[dict[str, Any]] = [dict(tool) for tool in request.tools]
        self.state: Any = request.state
        self._messages = tuple(request.messages)

    def __repr__(self) -> str:
        return f"<ScriptedRequest to {self.model} with {len(self._messages)} messages>"

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation as plain dicts.

        ``{"role": "user", "content"}``, ``{"role": "assistant", "content", "tool_calls"}`` with each call as
        ``{"id", "name", "arguments"}``, and ``{"role": "tool", "call_id", "name", "content", "is_error"}``.
        """
        return [plain for message in self._messages for plain in _plain(message)]


Line = Reply | str | Exception
Script = Sequence[Line] | Callable[[ScriptedRequest], Line]

_named: dict[str, ScriptedModel] = {}
_unnamed: weakref.WeakValueDictionary[str, ScriptedModel] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


class ScriptedModel:
    """A model whose replies are a list, or a function of the request; text stands for ``reply(text)``.

    An exception in the list, returned or raised is what the call fails with. A named model is found as
    ``"scripted:name"``, by worker processes too where an ``agents.py`` makes it; making the name again replaces it.
    A process that takes a turn over goes on in the list after the replies that the turn already has.
    """

    def __init__(self, script: Script, name: str | None = None) -> None:
        if not callable(script):
            script = list(script)
            for line in script:
                _require_line(line, "a script")
        self._script = script
        self._lock = threading.Lock()
        self._next = 0
        self.requests: list[ScriptedRequest] = []
        self.name = name or f"unnamed-{os.getpid()}-{next(_numbers)}"
        (_named if name else _unnamed)[self.name] = self

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.name}>"

    @property
    def model_id(self) -> str:
        """The model as an agent names it, ``"scripted:name"``."""
        return f"scripted:{self.name}"

    def assert_used(self) -> None:
        """Raise ``AssertionError`` unless every reply of the list was given, or the function was asked at all."""
        if callable(self._script):
            if not self.requests:
                raise AssertionError(f"{self.model_id} was never asked.")
            return
        left = len(self._script) - self._next
        if left > 0:
            raise AssertionError(f"{left} of {len(self._script)} replies of {self.model_id} were not used.")

    def take(self, request: ScriptedRequest, replied: int) -> tuple[int, Reply]:
        """The next reply and its position, for a conversation that holds ``replied`` replies of this model."""
        with self._lock:
            position = max(self._next, replied)
            self._next = position + 1
            self.requests.append(request)
        if callable(self._script):
            return position, _spoken(self._script(request), self.model_id)
        if position >= len(self._script):
            raise ProviderError(
                f"{self.model_id} was asked for reply number {position + 1}, but its script ends after "
                f"{len(self._script)}.",
                fault=Fault.PERMANENT,
                code="script_exhausted",
            )
        return position, _spoken(self._script[position], self.model_id)

    def peek(self, replied: int) -> Reply | None:
        """The reply that the list gives next, None where there is none to know."""
        with self._lock:
            position = max(self._next, replied)
        if callable(self._script) or position >= len(self._script):
            return None
        line = self._script[position]
        return reply(line) if isinstance(line, str) else line if isinstance(line, Reply) else None


def _require_line(line: object, where: str) -> None:
    if not isinstance(line, Reply | str | Exception):
        raise TypeError(f"{line!r} in {where} is a {type(line).__name__}; use reply(…), text or an exception.")


def _spoken(line: Line, model: str) -> Reply:
    if isinstance(line, Exception):
        raise line
    _require_line(line, f"the script of {model}")
    return reply(line) if isinstance(line, str) else line


class Scripted(Provider):
    """The provider behind ``"scripted:name"``: finds the model of that name in this process."""

    FLAVOUR: ClassVar[str] = "scripted"

    @property
    def flavour(self) -> str:
        return self.FLAVOUR

    def render(self, request: ModelRequest) -> dict[str, Any]:
        asked = ScriptedRequest(request)
        return {
            "model": asked.model,
            "instructions": asked.instructions,
            "tools": asked.tools,
            "messages": asked.messages,
        }

    def expected_cost(self, request: ModelRequest) -> Decimal | None:
        model = _lookup(request.model)
        said = model.peek(_replies_of(request)) if model else None
        return said.cost if said else None

    def call(
        self, request: ModelRequest, *, timeout: float, on_text: Callable[[str], None] | None = None
    ) -> ModelReply:
        model = _find(request.model)
        try:
            position, said = model.take(ScriptedRequest(request), _replies_of(request))
        except ProviderError:
            raise
        except Exception as error:
            raise ProviderError(
                f"The script of {model.model_id} raised {type(error).__name__}: {error}",
                fault=Fault.PERMANENT,
                code="script_error",
            ) from error
        time.sleep(min(said.delay, timeout))
        if said.delay > timeout:
            raise ProviderError(
                f"{model.model_id} did not answer within {timeout:g} seconds.",
                fault=Fault.TRANSIENT,
                code="timeout",
                billed=True,
            )
        if on_text and said.text:
            on_text(said.text)
        return self.parse(_wire(request.model, position, said), request.flavour)

    def parse(self, wire: str, flavour: str) -> ModelReply:
        said = json.loads(wire)
        calls = tuple(ToolRequest(call["id"], call["name"], call["arguments"]) for call in said["tool_calls"])
        text = [{"type": "text", "text": said["text"]}] if said["text"] else []
        return ModelReply(
            wire=wire,
            text=said["text"],
            tool_calls=calls,
            stop_reason=said["stop_reason"],
            complete=said["stop_reason"] in WHOLE,
            usage=Usage(**said["usage"]),
            model=said["model"],
            output=(*text, *({"type": "tool_call", **call} for call in said["tool_calls"])),
            cost=None if said["cost"] is None else Decimal(said["cost"]),
            knows_cost=True,
        )


def _wire(model: str, position: int, said: Reply) -> str:
    return json.dumps(
        {
            "model": model,
            "text": said.text,
            "tool_calls": [
                {"id": f"call_{position}_{index}", "name": name, "arguments": arguments}
                for index, (name, arguments) in enumerate(said.tool_calls)
            ],
            "stop_reason": said.stop_reason,
            "usage": {
                "input_tokens": said.input_tokens,
                "cached_input_tokens": said.cached_input_tokens,
                "output_tokens": said.output_tokens,
            },
            "cost": None if said.cost is None else str(said.cost),
        }
    )


def _lookup(name: str) -> ScriptedModel | None:
    return _named.get(name) or _unnamed.get(name)


def _find(name: str) -> ScriptedModel:
    model = _lookup(name)
    if model is None:
        raise ProviderError(
            f"No scripted model is named {name!r} in this process; make ScriptedModel(…, name={name!r}) in an "
            "agents.py, so that every process has it.",
            fault=Fault.PERMANENT,
            code="model_not_found",
        )
    return model


def _replies_of(request: ModelRequest) -> int:
    """How many replies of the requested model the conversation holds."""
    # Looking at the start of the wire, which ``_wire`` writes, keeps a long conversation cheap.
    start = json.dumps({"model": request.model})[:-1]
    return sum(
        isinstance(message, AssistantMessage)
        and message.flavour == Scripted.FLAVOUR
        and message.wire.startswith(f"{start},")
        for message in request.messages
    )


def _plain(message: Message) -> Iterable[dict[str, Any]]:
    match message:
        case UserMessage():
            yield {"role": "user", "content": message.text}
        case AssistantMessage():
            calls = [
                {"id": call.call_id, "name": call.name, "arguments": replayed_arguments(call.arguments)}
                for call in message.tool_calls
            ]
            yield {"role": "assistant", "content": message.text, "tool_calls": calls}
        case ToolResults():
            for result in message.results:
                yield {
                    "role": "tool",
                    "call_id": result.call_id,
                    "name": result.name,
                    "content": result.text,
                    "is_error": result.is_error,
                }
            if message.notice:
                yield {"role": "user", "content": message.notice}
