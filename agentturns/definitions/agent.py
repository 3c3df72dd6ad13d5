"""Agents: who answers, with which model, tools and limits. Declared once, in an app's ``agents.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.apps import apps

from agentturns.definitions.limits import Limits
from agentturns.definitions.state import TurnState
from agentturns.definitions.tools import Tool
from agentturns.exceptions import ConfigurationError

if TYPE_CHECKING:
    from agentturns.models import Turn

QUEUE_POLICIES = ("followup", "collect", "steer", "interrupt")
_registry: dict[str, Agent] = {}


class Agent:
    """An agent, registered under its name as soon as it is made.

    ``model`` is ``"alias:name"`` (the alias is a key of ``AGENTTURNS["PROVIDERS"]``) or a ``ScriptedModel``, or a list
    of these: when one cannot take a step, for good or after its attempts, the next does and stays for the rest of the
    turn; each step says which it was.
    ``instructions`` is text, or a function of the ``TurnState`` that returns text, rendered once a turn.
    ``max_reply_tokens`` limits one reply's output. Raises ``ConfigurationError`` for a wrong declaration.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        instructions: str | Callable[[TurnState], str],
        tools: Iterable[Tool] = (),
        limits: Limits | None = None,
        tool_concurrency: int | None = None,
        queue_policy: str | None = None,
        max_reply_tokens: int | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.instructions = instructions
        self.tools = tuple(tools)
        self.limits = Limits.of(limits)
        self.tool_concurrency = tool_concurrency
        self.queue_policy = queue_policy
        self.max_reply_tokens = max_reply_tokens
        self._check_declaration()
        if name in _registry:
            raise ConfigurationError(f"Two agents are named {name!r}; names are unique, so rename one of them.")
        _registry[name] = self

    def __repr__(self) -> str:
        return f"<Agent {self.name} model={self.model_id}>"

    @property
    def model_id(self) -> str:
        """The model as text, ``"alias:name"``; of a list the first, with which every turn begins."""
        return self.model_ids[0]

    @property
    def model_ids(self) -> tuple[str, ...]:
        """All models as text, in the order in which they are asked."""
        return tuple(map(_model_id, _listed(self.model)))

    def tool_named(self, name: str) -> Tool | None:
        """The tool of this name, None when the agent has none."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def start(
        self,
        input: str,
        *,
        tenant: str = "",
        user: Any = None,
        context: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        key: str = "",
    ) -> Turn:
        """Open a session and queue its first turn; the same (agent, tenant, key) returns the turn that exists.

        ``context`` (for tools, never shown to the model) and ``metadata`` (kept with the session) must be JSON.
        Raises ``ValueError`` for empty or too large input, ``TypeError`` for what is not text or not JSON.
        """
        turn_model: Any = apps.get_model("agentturns", "Turn")
        return turn_model.objects.open(
            agent=self,
            input=input,
            tenant=tenant,
            user=user,
            context=context,
            metadata=metadata,
            limits=limits,
            key=key,
        )

    async def astart(self, input: str, **options: Any) -> Turn:
        """Async twin of :meth:`start`."""
        return await sync_to_async(self.start)(input, **options)

    @contextmanager
    def override(self, *, model: Any = None, limits: Limits | None = None) -> Iterator[Agent]:
        """For tests: another model or other limits inside the ``with`` block, in every thread of this process."""
        before = self.model, self.limits
        try:
            if model is not None:
                _check_models(self.name, model)
                self.model = model
            if limits is not None:
                self.limits = Limits.of(limits)
            yield self
        finally:
            self.model, self.limits = before

    def _check_declaration(self) -> None:
        where = f"Agent {self.name!r}"
        if not isinstance(self.name, str) or not self.name.strip() or len(self.name) > 100:
            raise ConfigurationError(f"{where}: a name is text of 1 to 100 characters.")
        _check_models(self.name, self.model)
        if not isinstance(self.instructions, str) and not callable(self.instructions):
            raise ConfigurationError(f"{where}: instructions are text, or a function of the TurnState returning text.")
        for tool in self.tools:
            if not isinstance(tool, Tool):
                raise ConfigurationError(f"{where}: {tool!r} is not a tool; put @tool above the function.")
        names = [tool.name for tool in self.tools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(f"{where} has two tools named {twice[0]!r}; pass name='…' to one of them.")
        for field in ("tool_concurrency", "max_reply_tokens"):
            value = getattr(self, field)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ConfigurationError(f"{where}: {field} is {value!r}; it is a whole number above 0, or None.")
        if self.queue_policy is not None and self.queue_policy not in QUEUE_POLICIES:
            raise ConfigurationError(
                f"{where}: queue_policy is {self.queue_policy!r}; it is one of {', '.join(QUEUE_POLICIES)}."
            )


def _model_id(model: Any) -> str:
    return model if isinstance(model, str) else model.model_id


def _listed(model: Any) -> Sequence[Any]:
    return model if isinstance(model, list | tuple) else (model,)


def _check_models(agent: str, model: Any) -> None:
    models = _listed(model)
    if not models:
        raise ConfigurationError(f"Agent {agent!r}: model is an empty list; name at least one model.")
    for one in models:
        _check_model(agent, one)
    ids = list(map(_model_id, models))
    if len(set(ids)) < len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise ConfigurationError(
            f"Agent {agent!r}: model has {twice!r} twice; it is asked once a step, so name it once."
        )


def _check_model(agent: str, model: Any) -> None:
    known = model if isinstance(model, str) else getattr(model, "model_id", None)
    alias, colon, name = known.partition(":") if isinstance(known, str) else ("", "", "")
    if not (alias and colon and name):
        raise ConfigurationError(
            f"Agent {agent!r}: model is {model!r}; write it as 'alias:name', such as 'anthropic:claude-sonnet-5'."
        )


def get_agent(name: str) -> Agent:
    """The agent registered under ``name``. Raises ``ConfigurationError`` when there is none."""
    try:
        return _registry[name]
    except KeyError:
        known = ", ".join(sorted(_registry)) or "none"
        raise ConfigurationError(
            f"No agent is named {name!r} (registered: {known}); declare it in an installed app's agents.py."
        ) from None


def registered_agents() -> dict[str, Agent]:
    """Every registered agent by name."""
    return dict(_registry)
