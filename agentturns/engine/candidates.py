"""The models that may take a turn's steps, fixed in its snapshot, and which of them is to take the next one.

A turn begins with the agent's first model. When a model cannot take a step (its error is permanent, or its attempts
are used up), the next in the list does, after the last the first again, each once a step. Whoever took a step takes
the following ones too: a model goes on with its own reasoning and its own cached prefix. The next turn begins with the
first model again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from agentturns.models.step import Step
from agentturns.models.turn import Turn
from agentturns.providers import get_provider, split_model
from agentturns.providers.base import AssistantMessage, Message

OTHERS = "fallbacks"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model as the snapshot has it: who it is, its wire, and the options of its requests."""

    alias: str
    name: str
    flavour: str
    options: dict[str, Any]

    @property
    def model_id(self) -> str:
        """``"alias:name"``."""
        return f"{self.alias}:{self.name}"

    def takes(self, step: Step) -> bool:
        """Whether ``step`` is asked of this model."""
        return (step.provider, step.requested_model) == (self.alias, self.name)


def snapshot_columns(model_ids: Iterable[str], shared: dict[str, Any]) -> dict[str, Any]:
    """The columns that keep the models: the first with its flavour and options, the others among these.

    ``shared`` are options of every model. Raises ``ConfigurationError`` for an alias that is not configured.
    """
    first, *others = [_described(model_id, shared) for model_id in model_ids]
    options = {**first["options"], **({OTHERS: others} if others else {})}
    return {
        "model": first["model"],
        "wire_flavour": first["flavour"],
        "request_options": json.dumps(options, ensure_ascii=False),
    }


def _described(model_id: str, shared: dict[str, Any]) -> dict[str, Any]:
    provider = get_provider(split_model(model_id)[0])
    return {"model": model_id, "flavour": provider.flavour, "options": {**provider.request_options(), **shared}}


def candidates_of(turn: Turn) -> list[Candidate]:
    """The turn's models, in the agent's order."""
    options = json.loads(turn.request_options)
    others = options.pop(OTHERS, [])
    return [
        Candidate(*split_model(turn.model), turn.wire_flavour, options),
        *(Candidate(*split_model(other["model"]), other["flavour"], other["options"]) for other in others),
    ]


def in_turn(candidates: list[Candidate], last: Step | None) -> list[Candidate]:
    """The models in the order in which they are asked for a step; ``last`` is the turn's last completed step."""
    start = next((place for place, one in enumerate(candidates) if last is not None and one.takes(last)), 0)
    return [*candidates[start:], *candidates[:start]]


def flavour_of(turn: Turn, step: Step) -> str:
    """The wire on which a step of ``turn`` was answered."""
    if f"{step.provider}:{step.requested_model}" == turn.model:
        return turn.wire_flavour
    return next((one.flavour for one in candidates_of(turn) if one.takes(step)), turn.wire_flavour)


def seen_by(candidate: Candidate, messages: Iterable[Message]) -> list[Message]:
    """The conversation for one model: what another said is told in words and calls, without its private blocks."""
    return [
        replace(message, flavour="")
        if isinstance(message, AssistantMessage) and message.model != candidate.model_id
        else message
        for message in messages
    ]
