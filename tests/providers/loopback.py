"""Turns that ask a server on this machine: its providers as settings, and what a run leaves in the rows."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.test import override_settings

from agentturns import Agent, Turn
from agentturns.engine.runner import run_turn

KEY = "sk-loopback-1234567890"
# A model of each vendor whose price the public list knows, so that estimates and costs are above zero.
MODELS = {"responses": "responses:gpt-4.1-mini", "chat": "chat:gpt-4.1-mini", "messages": "messages:claude-sonnet-4-5"}
BACKENDS = {
    "responses": "agentturns.providers.openai.OpenAI",
    "chat": "agentturns.providers.openai.OpenAI",
    "messages": "agentturns.providers.anthropic.Anthropic",
}


def providers(url: str, **changes: Any) -> Any:
    """Settings with an alias for each wire, all at ``url``.

    ``changes`` in capitals are settings of agentturns, others are options of every one of the aliases.
    """
    addresses = {"responses": f"{url}/v1", "chat": f"{url}/v1", "messages": url}
    return at(addresses, **changes)


def at(addresses: dict[str, str], **changes: Any) -> Any:
    """The same with an address for each wire."""
    own: dict[str, dict[str, Any]] = {
        "responses": {"pricing": "openai"},
        "chat": {"pricing": "openai", "api": "chat", "stream": True},
        "messages": {"pricing": "anthropic"},
    }
    whole = {name: value for name, value in changes.items() if name.isupper()}
    options = {name: value for name, value in changes.items() if name not in whole}
    entries = {
        flavour: {
            "BACKEND": BACKENDS[flavour],
            "OPTIONS": {"base_url": address, "api_key": KEY, **own[flavour], **options},
        }
        for flavour, address in addresses.items()
    }
    return override_settings(AGENTTURNS={**getattr(settings, "AGENTTURNS", {}), **whole, "PROVIDERS": entries})


def asking(flavour: str, **fields: Any) -> Agent:
    """An agent that asks a model on this wire."""
    return Agent(**{"name": "tester", "model": MODELS[flavour], "instructions": "Be brief.", **fields})


def run_again(turn: Turn) -> Turn:
    """Run the turn without waiting for the end of its back-off."""
    Turn.objects.filter(pk=turn.pk).update(run_after=None)
    return run_turn(turn.pk)
