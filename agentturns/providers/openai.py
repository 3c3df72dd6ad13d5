"""OpenAI, and the many servers that speak its wire: Responses by default, Chat Completions by option."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from agentturns.providers import openai_chat, openai_responses
from agentturns.providers.base import ModelReply, ModelRequest, Usage
from agentturns.providers.gathering import Gathering
from agentturns.providers.openai_chat_stream import GatheredCompletion
from agentturns.providers.openai_responses_stream import GatheredResponse
from agentturns.providers.remote import RemoteProvider


class OpenAI(RemoteProvider):
    """OpenAI through its SDK.

    Options: ``api`` is ``"responses"`` (the default; newer models of OpenAI want it for tools) or ``"chat"`` (what most
    compatible servers want, with their ``base_url``). ``api_key`` (else ``OPENAI_API_KEY``), ``organization``,
    ``project``, ``headers``. ``service_tier`` and ``reasoning_effort`` are sent as they are; ``extra`` is merged into
    the request's body. ``prompt_cache_key=True`` sends that key to other servers than OpenAI's too, ``False`` to none.
    ``stream`` (see ``RemoteProvider``), by default on ``"responses"`` and with OpenAI itself; other servers stream chat
    only when told to, as some refuse to be asked for the usage of a stream. ``pricing`` is the vendor's id in
    genai-prices, for servers whose prices it knows.
    """

    SDK = "openai"
    KEY_VARIABLE = "OPENAI_API_KEY"
    URL_VARIABLE = "OPENAI_BASE_URL"
    DEFAULT_URL = "https://api.openai.com/v1"
    PRICING_ID = "openai"
    OPTIONS: ClassVar[tuple[str, ...]] = (
        "api",
        "organization",
        "project",
        "service_tier",
        "reasoning_effort",
        "prompt_cache_key",
    )

    @property
    def flavour(self) -> str:
        return str(self.options.get("api", openai_responses.FLAVOUR))

    def request_options(self) -> dict[str, Any]:
        sent = super().request_options()
        sent |= {name: self.options[name] for name in ("service_tier", "reasoning_effort") if self.options.get(name)}
        # What only OpenAI is sure to understand is settled when the turn starts, so that its requests stay equal.
        sent["prompt_cache_key"] = bool(self.options.get("prompt_cache_key", self.is_vendors_own))
        if not self.is_vendors_own:
            sent["max_tokens_field"] = "max_tokens"
        return sent

    def render(self, request: ModelRequest) -> dict[str, Any]:
        if request.flavour == openai_chat.FLAVOUR:
            return openai_chat.render(request)
        return openai_responses.render(request)

    def parse(self, wire: str, flavour: str) -> ModelReply:
        if flavour == openai_chat.FLAVOUR:
            return openai_chat.parse(wire, self.endpoint)
        return openai_responses.parse(wire, self.endpoint)

    @property
    def _streams_by_default(self) -> bool:
        return self.is_vendors_own or self.flavour == openai_responses.FLAVOUR

    def _gathering(self, flavour: str, on_text: Callable[[str], None] | None) -> Gathering:
        made = GatheredCompletion if flavour == openai_chat.FLAVOUR else GatheredResponse
        return made(self.endpoint, on_text)

    def _read_usage(self, usage: dict[str, Any], flavour: str) -> Usage:
        return (openai_chat if flavour == openai_chat.FLAVOUR else openai_responses).usage_of(usage)

    def _paths(self) -> dict[str, str]:
        return {openai_responses.FLAVOUR: "/responses", openai_chat.FLAVOUR: "/chat/completions"}

    def _make_client(self, key: str) -> Any:
        import openai

        return openai.OpenAI(
            api_key=key,
            base_url=self.base_url,
            organization=self.options.get("organization"),
            project=self.options.get("project"),
            default_headers=self.options.get("headers"),
            max_retries=0,
        )

    def _check_options(self) -> None:
        super()._check_options()
        if self.flavour not in self._paths():
            raise TypeError(f"OPTIONS['api'] is {self.flavour!r}, but it is 'responses' or 'chat'")
