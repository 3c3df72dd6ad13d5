"""Anthropic through its SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from agentturns.providers import anthropic_messages
from agentturns.providers.anthropic_messages import DEFAULT_MAX_TOKENS, FLAVOUR
from agentturns.providers.anthropic_stream import GatheredMessage
from agentturns.providers.base import ModelReply, ModelRequest, Usage
from agentturns.providers.gathering import Gathering
from agentturns.providers.remote import RemoteProvider


class Anthropic(RemoteProvider):
    """Anthropic through its SDK.

    Options: ``api_key`` (else ``ANTHROPIC_API_KEY``), ``base_url``, ``headers``; ``max_tokens`` limits the replies of
    agents that set no limit of their own (8192 by default; the wire needs one); ``prompt_caching`` (True by default)
    marks what the next request will repeat, so that it is read from the vendor's cache; ``stream`` (see
    ``RemoteProvider``), by default always; ``extra`` is merged into the request's body; ``pricing`` is the vendor's id
    in genai-prices.
    """

    SDK = "anthropic"
    KEY_VARIABLE = "ANTHROPIC_API_KEY"
    URL_VARIABLE = "ANTHROPIC_BASE_URL"
    DEFAULT_URL = "https://api.anthropic.com"
    PRICING_ID = "anthropic"
    OPTIONS: ClassVar[tuple[str, ...]] = ("max_tokens", "prompt_caching")

    @property
    def flavour(self) -> str:
        return FLAVOUR

    def request_options(self) -> dict[str, Any]:
        return {
            **super().request_options(),
            "max_tokens": self.options.get("max_tokens", DEFAULT_MAX_TOKENS),
            "prompt_caching": self.options.get("prompt_caching", True),
        }

    def output_limit(self, request: ModelRequest) -> int | None:
        return anthropic_messages.output_limit(request)

    def render(self, request: ModelRequest) -> dict[str, Any]:
        return anthropic_messages.render(request)

    def parse(self, wire: str, flavour: str) -> ModelReply:
        return anthropic_messages.parse(wire, self.endpoint)

    def _read_usage(self, usage: dict[str, Any], flavour: str) -> Usage:
        return anthropic_messages.usage_of(usage)

    def _paths(self) -> dict[str, str]:
        return {FLAVOUR: "/v1/messages"}

    def _gathering(self, flavour: str, on_text: Callable[[str], None] | None) -> Gathering:
        return GatheredMessage(self.endpoint, on_text)

    def _make_client(self, key: str) -> Any:
        import anthropic

        return anthropic.Anthropic(
            api_key=key,
            base_url=self.base_url,
            default_headers=self.options.get("headers"),
            max_retries=0,
        )

    def _check_options(self) -> None:
        super()._check_options()
        limit = self.options.get("max_tokens", DEFAULT_MAX_TOKENS)
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise TypeError(f"OPTIONS['max_tokens'] is {limit!r}, but it is a whole number of at least 1")
        if not isinstance(caching := self.options.get("prompt_caching", True), bool):
            raise TypeError(f"OPTIONS['prompt_caching'] is {caching!r}, but it is True or False")
