"""A vendor asked over HTTP with a key: what the providers with an SDK have in common."""

from __future__ import annotations

import json
import os
import threading
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar
from urllib.parse import urlsplit

from agentturns.providers.base import Fault, ModelReply, ModelRequest, Provider, ProviderError, Usage
from agentturns.providers.exchange import post
from agentturns.providers.faults import Endpoint, key_problem, missing_key
from agentturns.providers.gathering import Gathering
from agentturns.providers.reading import mapping

CONVERSATION = ("model", "input", "messages", "instructions", "system", "tools", "stream")


class RemoteProvider(Provider):
    """A vendor asked over HTTP. Its key comes from ``OPTIONS["api_key"]``, else from the environment.

    Options of every such provider: ``api_key``, ``base_url``, ``headers`` (a dict, sent with each request), ``extra``
    (a dict merged into each request's body), ``pricing`` (the vendor's id in genai-prices; by default the vendor's own
    for its own address, and none, so unpriced, for another). ``stream``: True has replies sent piece by piece, which
    keeps connections from timing out while a long one is written; False has them sent whole; None, the default, leaves
    it to the provider. It is settled when a turn starts.
    """

    SDK: ClassVar[str]
    KEY_VARIABLE: ClassVar[str]
    URL_VARIABLE: ClassVar[str]
    DEFAULT_URL: ClassVar[str]
    PRICING_ID: ClassVar[str]
    OPTIONS: ClassVar[tuple[str, ...]] = ("api_key", "base_url", "headers", "extra", "pricing", "stream")

    def __init__(self, alias: str, **options: Any) -> None:
        super().__init__(alias, **options)
        self._check_options()
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str], Any] = {}

    @property
    def base_url(self) -> str:
        """The address asked: the option, else the SDK's environment variable, else the vendor's own."""
        return self.options.get("base_url") or os.environ.get(self.URL_VARIABLE) or self.DEFAULT_URL

    @property
    def is_vendors_own(self) -> bool:
        """Whether the vendor itself is asked, and not a server that speaks its wire."""
        own = urlsplit(self.DEFAULT_URL).hostname or ""
        host = urlsplit(self.base_url).hostname or ""
        return host == own or host.endswith(f".{own}")

    @property
    def pricing_id(self) -> str:
        default = self.PRICING_ID if self.is_vendors_own else ""
        return str(self.options.get("pricing", default) or "")

    @property
    def endpoint(self) -> Endpoint:
        """Who is asked, for messages."""
        secrets = (self._key(), *map(str, (self.options.get("headers") or {}).values()))
        # A short header value, such as a version, is no secret, and taking it out would garble every message.
        return Endpoint(self.alias, self.KEY_VARIABLE, tuple(secret for secret in secrets if len(secret) >= 8))

    def problems(self) -> list[str]:
        return [] if self._key() else [key_problem(self.endpoint)]

    def preload(self) -> None:
        import_module(self.SDK)

    def call(
        self, request: ModelRequest, *, timeout: float, on_text: Callable[[str], None] | None = None
    ) -> ModelReply:
        path = self._path(request.flavour)
        gathering = self._gathering(request.flavour, on_text) if request.options.get("stream") else None
        body = self.render(request)
        answer = post(self._client(), path, body, endpoint=self.endpoint, timeout=timeout, gathering=gathering)
        try:
            reply = self.parse(answer.text, request.flavour)
        except ProviderError as error:
            error.usage = self._usage_in(answer.text, request.flavour)
            raise
        if on_text and reply.text and not answer.streamed:
            on_text(reply.text)
        return replace(reply, request_id=answer.request_id or reply.request_id)

    def request_options(self) -> dict[str, Any]:
        extra = {"extra": self.options["extra"]} if self.options.get("extra") else {}
        stream = self.options.get("stream")
        return {"stream": self._streams_by_default if stream is None else stream, **extra}

    @property
    def _streams_by_default(self) -> bool:
        return True

    def _usage_in(self, wire: str, flavour: str) -> Usage | None:
        """What a reply that is of no use tells of its usage all the same."""
        try:
            usage = self._read_usage(mapping(mapping(json.loads(wire)).get("usage")), flavour)
        except (ValueError, RecursionError):
            return None
        return usage if usage.input_tokens is not None else None

    @abstractmethod
    def _read_usage(self, usage: dict[str, Any], flavour: str) -> Usage:
        """The usage as a reply of this flavour tells it."""

    @abstractmethod
    def _gathering(self, flavour: str, on_text: Callable[[str], None] | None) -> Gathering:
        """What puts a streamed reply of this flavour together."""

    @abstractmethod
    def _paths(self) -> dict[str, str]:
        """The path of each flavour, below ``base_url``."""

    @abstractmethod
    def _make_client(self, key: str) -> Any:
        """The SDK's client, without retries of its own."""

    def _path(self, flavour: str) -> str:
        paths = self._paths()
        if flavour not in paths:
            raise ProviderError(
                f"The provider {self.alias!r} speaks {' and '.join(paths)}, but this turn was begun as {flavour!r}; "
                "give the alias its former BACKEND and retry the turn, or cancel it.",
                fault=Fault.PERMANENT,
                code="unknown_flavour",
            )
        return paths[flavour]

    def _key(self) -> str:
        return self.options.get("api_key") or os.environ.get(self.KEY_VARIABLE, "")

    def _client(self) -> Any:
        key = self._key()
        if not key:
            raise missing_key(self.endpoint)
        with self._lock:
            found = self._clients.get((key, self.base_url))
            if found is None:
                found = self._clients[key, self.base_url] = self._make_client(key)
            return found

    def _check_options(self) -> None:
        known = sorted({*RemoteProvider.OPTIONS, *self.OPTIONS})
        for name in self.options:
            if name not in known:
                raise TypeError(f"OPTIONS has {name!r}, but the options are {', '.join(known)}")
        for name in ("headers", "extra"):
            if not isinstance(self.options.get(name, {}), dict):
                raise TypeError(f"OPTIONS[{name!r}] is a {type(self.options[name]).__name__}, but it is a dict")
        if (stream := self.options.get("stream")) not in (True, False, None):
            raise TypeError(f"OPTIONS['stream'] is {stream!r}, but it is True, False or None")
        extra = self.options.get("extra", {})
        for name in CONVERSATION:
            if name in extra:
                raise TypeError(f"OPTIONS['extra'] has {name!r}, which comes from the turn itself")
        try:
            json.dumps(extra, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TypeError(f"OPTIONS['extra'] is not JSON: {error}") from None
