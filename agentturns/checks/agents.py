"""The declared agents: a model that can be reached, and a cap on what they may cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error, Warning

from agentturns.checks.values import with_valid_values
from agentturns.conf import conf
from agentturns.definitions.agent import Agent, registered_agents
from agentturns.definitions.limits import INHERIT
from agentturns.exceptions import ConfigurationError
from agentturns.providers import get_provider, split_model


@with_valid_values
def check_agents(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Each agent's model provider, asked once per alias, and its ``max_cost``."""
    agents = sorted(registered_agents().values(), key=lambda agent: agent.name)
    users: dict[str, list[str]] = {}
    for agent in agents:
        for alias in sorted({split_model(model)[0] for model in agent.model_ids}):
            users.setdefault(alias, []).append(agent.name)
    return [
        *(message for alias, names in sorted(users.items()) for message in _check_alias(alias, names)),
        *(_without_max_cost(agent) for agent in agents if not _caps_cost(agent)),
    ]


def _check_alias(alias: str, names: list[str]) -> Iterator[CheckMessage]:
    used_by = f"Used by the agent{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}."
    if alias not in conf.PROVIDERS:
        yield Error(
            f"No model provider has the alias {alias!r}. {used_by}",
            hint=f"Use one of {', '.join(sorted(conf.PROVIDERS))}, or add it to AGENTTURNS['PROVIDERS'].",
            id="agentturns.E030",
        )
        return
    try:
        problems = get_provider(alias).problems()
    except (ConfigurationError, ImportError) as error:
        yield Error(
            f"The model provider {alias!r} cannot be made: {error} {used_by}",
            hint=f"Correct AGENTTURNS['PROVIDERS'][{alias!r}], or install the library that it needs.",
            id="agentturns.E031",
        )
        return
    for problem in problems:
        yield Warning(f"{problem} {used_by}", id="agentturns.W030")


def _caps_cost(agent: Agent) -> bool:
    # A written None is a decision that can be read in the code; only a forgotten cap is worth a warning.
    return agent.limits.max_cost is not INHERIT or conf.DEFAULT_LIMITS.get("max_cost") is not None


def _without_max_cost(agent: Agent) -> CheckMessage:
    return Warning(
        f"The agent {agent.name!r} has no max_cost, so nothing stops a turn from spending without end.",
        hint="Give it Limits(max_cost=Decimal('0.25')), set AGENTTURNS['DEFAULT_LIMITS']['max_cost'], or write "
        "Limits(max_cost=None) to say that it may cost anything.",
        id="agentturns.W031",
    )
