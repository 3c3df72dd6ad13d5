"""A vendor whose replies used what a test says, priced as any vendor's: by the operator's prices, else by the list."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, ClassVar

from agentturns.providers.base import ModelReply, ModelRequest, Provider, ProviderError, ToolRequest, Usage

BACKEND = "tests.metered.Metered"

Spoken = Usage | ProviderError
Script = Iterable[Spoken] | Callable[[ModelRequest], Spoken]


class Metered(Provider):
    """Calls the tool ``note`` as long as its script goes on, then answers.

    A reply that used all the tokens it was allowed is cut. Options: ``pricing`` is the vendor's id in genai-prices,
    ``sent`` what is sent with each request, ``served`` the name that it gives its model, ``context`` what its replies
    say beside their usage.
    """

    script: ClassVar[list[Spoken] | Callable[[ModelRequest], Spoken]] = []
    requests: ClassVar[list[ModelRequest]] = []

    @classmethod
    def say(cls, script: Script) -> None:
        """What to say from now on: the usage of each reply, or a function that gives it."""
        cls.script = script if callable(script) else list(script)
        cls.requests = []

    @property
    def flavour(self) -> str:
        return "metered"

    @property
    def pricing_id(self) -> str:
        return str(self.options.get("pricing", ""))

    def request_options(self) -> dict[str, Any]:
        return dict(self.options.get("sent", {}))

    def render(self, request: ModelRequest) -> dict[str, Any]:
        return {"model": request.model}

    def call(self, request: ModelRequest, *, timeout: float, on_text: Any = None) -> ModelReply:
        cls = type(self)
        cls.requests.append(request)
        said = cls.script(request) if callable(cls.script) else cls.script[len(cls.requests) - 1]
        if isinstance(said, ProviderError):
            raise said
        cut = isinstance(said.output_tokens, int) and said.output_tokens == request.max_output_tokens
        last = not callable(cls.script) and len(cls.requests) == len(cls.script)
        return self.parse(json.dumps({"usage": asdict(said), "last": last, "cut": cut}), self.flavour)

    def parse(self, wire: str, flavour: str) -> ModelReply:
        said = json.loads(wire)
        calls = () if said["last"] or said["cut"] else (ToolRequest("", "note", '{"text": "a"}'),)
        return ModelReply(
            wire=wire,
            text="" if calls else "done",
            tool_calls=calls,
            stop_reason="length" if said["cut"] else "tool_calls" if calls else "stop",
            complete=not said["cut"],
            usage=Usage(**said["usage"]),
            model=str(self.options.get("served", "")),
            price_context=self.options.get("context", {}),
        )
