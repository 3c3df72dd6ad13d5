"""The ``AGENTTURNS`` setting, read live: every access looks at ``django.conf.settings`` again.

::

    AGENTTURNS = {
        "PROVIDERS": {"openai": {"BACKEND": "agentturns.providers.openai.OpenAI", "OPTIONS": {"api": "responses"}}},
        "DEFAULT_LIMITS": {"max_steps": 50},
        "CONCURRENCY": 20,
    }
"""

from __future__ import annotations

from typing import Any

from django.conf import settings as django_settings
from django.utils.module_loading import import_string

from agentturns.exceptions import ConfigurationError

BUILT_IN_PROVIDERS: dict[str, dict[str, Any]] = {
    "openai": {"BACKEND": "agentturns.providers.openai.OpenAI", "OPTIONS": {}},
    "anthropic": {"BACKEND": "agentturns.providers.anthropic.Anthropic", "OPTIONS": {}},
    "scripted": {"BACKEND": "agentturns.providers.scripted.Scripted", "OPTIONS": {}},
}


class Settings:
    """Typed defaults for ``settings.AGENTTURNS``; each property documents one key."""

    def _get(self, key: str, default: Any) -> Any:
        return getattr(django_settings, "AGENTTURNS", {}).get(key, default)

    @property
    def PROVIDERS(self) -> dict[str, dict[str, Any]]:
        """Model providers by alias: ``{"BACKEND": dotted path, "OPTIONS": {...}}``.

        ``openai``, ``anthropic`` and ``scripted`` exist without being named; an entry of yours replaces one whole.
        """
        return {**BUILT_IN_PROVIDERS, **self._get("PROVIDERS", {})}

    @property
    def DEFAULT_LIMITS(self) -> dict[str, Any]:
        """Caps for agents and turns that name none: keyword arguments of ``Limits``."""
        return self._get("DEFAULT_LIMITS", {"max_steps": 50})

    @property
    def CONCURRENCY(self) -> int:
        """How many turns one worker process runs at once, each on a thread."""
        return self._get("CONCURRENCY", 20)

    @property
    def LEASE_SECONDS(self) -> float:
        """How long, in seconds, a worker that fell silent keeps its turns before another takes them over."""
        return self._get("LEASE_SECONDS", 60)

    @property
    def TOOL_TIMEOUT(self) -> float:
        """Deadline of a tool call, in seconds, for tools that declare none."""
        return self._get("TOOL_TIMEOUT", 300)

    @property
    def MODEL_TIMEOUT(self) -> float:
        """Deadline of one model call, in seconds."""
        return self._get("MODEL_TIMEOUT", 600)

    @property
    def ON_TEXT(self) -> str | None:
        """Dotted path of ``(turn, step_index, text) -> None``, offered each piece of a reply's text; None for none.

        Called on the turn's thread, inside ``MODEL_TIMEOUT``: pass the text on and return. The pieces are stored
        nowhere, and a step that is tried again begins anew. What it raises is logged and changes nothing. A reply
        that is not streamed (see the provider's ``stream`` option) comes as one piece.
        """
        return self._get("ON_TEXT", None)

    @property
    def MAX_INPUT_BYTES(self) -> int:
        """The largest input ``start`` and ``send`` accept, in UTF-8 bytes."""
        return self._get("MAX_INPUT_BYTES", 1_000_000)

    @property
    def MAX_RESULT_BYTES(self) -> int:
        """The largest tool result that is stored whole, in UTF-8 bytes of JSON; of a larger one the head is kept."""
        return self._get("MAX_RESULT_BYTES", 1_000_000)

    @property
    def MAX_RESULT_CHARS(self) -> int:
        """How many characters of a tool result the model is given; the rest is cut with a visible mark."""
        return self._get("MAX_RESULT_CHARS", 50_000)

    @property
    def DATABASE(self) -> str:
        """The database alias that holds the rows of agentturns, and on which transactional tools must write."""
        return self._get("DATABASE", "default")

    @property
    def QUEUE(self) -> str:
        """The django-q2 cluster name that turns use, apart from the project's other tasks."""
        return self._get("QUEUE", "agentturns")

    @property
    def POLL_SECONDS(self) -> float:
        """How often a worker with room looks for more runnable turns, in seconds."""
        return self._get("POLL_SECONDS", 0.2)

    @property
    def SLICE_SECONDS(self) -> float:
        """How long one pump claims turns before it hands over to the next, in seconds."""
        return self._get("SLICE_SECONDS", 60)

    @property
    def SWEEP_SECONDS(self) -> float:
        """How often, over all workers of a database, expired leases and lost wake-ups are looked for, in seconds."""
        return self._get("SWEEP_SECONDS", 30)

    @property
    def PROVIDER_ATTEMPTS(self) -> int:
        """How many times in a row a step may fail on transient provider errors before the turn parks."""
        return self._get("PROVIDER_ATTEMPTS", 6)

    @property
    def RETRY_CEILING_SECONDS(self) -> float:
        """The longest wait before another attempt, in seconds, whatever Retry-After says."""
        return self._get("RETRY_CEILING_SECONDS", 900)

    @property
    def CRASH_LIMIT(self) -> int:
        """How many takeovers without progress park a turn as ``crash_loop``."""
        return self._get("CRASH_LIMIT", 3)

    @property
    def QUEUE_POLICY(self) -> str:
        """What a message to a busy session does where neither session nor agent says: see ``Session.send``."""
        return self._get("QUEUE_POLICY", "followup")

    @property
    def COLLECT_DEBOUNCE_SECONDS(self) -> float:
        """How long a turn under ``collect`` waits for another message before it begins, in seconds."""
        return self._get("COLLECT_DEBOUNCE_SECONDS", 2.0)

    @property
    def COLLECT_CEILING_SECONDS(self) -> float:
        """How long a turn under ``collect`` waits at most, however many messages come in, in seconds."""
        return self._get("COLLECT_CEILING_SECONDS", 30.0)

    @property
    def STEER_MAX(self) -> int:
        """How many messages may wait for one turn under ``steer``; further ones become turns of their own."""
        return self._get("STEER_MAX", 5)

    @property
    def STEER_WORDING(self) -> str:
        """How a steering message reads for the model; ``{message}`` stands for it and must be there."""
        return self._get("STEER_WORDING", "{message}")

    @property
    def MIDDLEWARE(self) -> list[str]:
        """Dotted paths of middleware that each turn passes once, the first outermost; see ``engine/middleware.py``."""
        return self._get("MIDDLEWARE", [])

    @property
    def EDGE_LIMITS(self) -> dict[str, tuple[int, float]]:
        """What ``agentturns.engine.middleware.EdgeLimiter`` allows, each as (number, window in seconds).

        ``turns_per_session`` and ``tokens_per_agent``.
        """
        return self._get("EDGE_LIMITS", {})

    @property
    def APPROVAL_COORDINATOR(self) -> str:
        """Dotted path of ``(ApprovalRequest) -> bool | Denied | None``, asked before a tool's own approval rule.

        None leaves the call to the tool's rule. A rule for all agents belongs here.
        """
        return self._get("APPROVAL_COORDINATOR", "")

    @property
    def MAY_DECIDE(self) -> str:
        """Dotted path of ``(user, tool_call) -> bool | str``, asked before a user decides a call; text says why not.

        For rules beyond permissions, such as four eyes or a ceiling per group.
        """
        return self._get("MAY_DECIDE", "")

    @property
    def APPROVAL_SECONDS(self) -> float:
        """How long a call waits for a person before it counts as declined, in seconds (7 days)."""
        return self._get("APPROVAL_SECONDS", 7 * 24 * 3600)


conf = Settings()


def load(path: str, key: str) -> Any:
    """What the dotted ``path`` in ``AGENTTURNS[key]`` names. Raises ``ConfigurationError`` when there is nothing."""
    try:
        return import_string(path)
    except ImportError as error:
        raise ConfigurationError(f"AGENTTURNS[{key!r}] names {path!r}, which cannot be imported: {error}.") from error
