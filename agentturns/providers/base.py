"""What every provider gives the engine: one request in, one reply out, one wire each, no rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.db.models import TextChoices


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """One tool call the model asked for. ``arguments`` is the JSON text as the model wrote it."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call; None means the provider did not say.

    ``input_tokens`` is the whole input: cached and written parts are subsets of it. ``reasoning_tokens`` are part
    of ``output_tokens``. ``cache_write_1h_tokens`` is the part of ``cache_write_tokens`` priced at the 1-hour rate.
    """

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_1h_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class UserMessage:
    """Text from the user's side."""

    text: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A stored reply. ``wire`` is replayed byte for byte when ``flavour`` is the request's own; else it is
    rendered from ``text`` and ``tool_calls``. ``model`` is the ``"alias:name"`` that was asked for it.

    ``tool_calls`` carry the ids that the request must use: unique in the conversation, in the order of the wire.
    Where they differ from the ids inside ``wire`` (missing or repeated there), these win.
    """

    wire: str
    flavour: str
    text: str
    tool_calls: tuple[ToolRequest, ...] = ()
    model: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model is told of one call. ``text`` is never empty."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class ToolResults:
    """All results of one reply's calls, one per call and in its order, and what is said to the model after them."""

    results: tuple[ToolResult, ...]
    notice: str = ""


Message = UserMessage | AssistantMessage | ToolResults


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call, in neutral terms.

    ``model`` is the name without its alias; ``tools`` are ``{"name", "description", "parameters"}`` dicts, the last
    a JSON schema; ``flavour`` and ``options`` come from the turn's snapshot and win over today's settings.
    ``state`` is the running turn's ``TurnState`` (only scripted models look at it).
    """

    model: str
    flavour: str
    instructions: str
    tools: Sequence[Mapping[str, Any]]
    messages: Sequence[Message]
    options: Mapping[str, Any] = field(default_factory=dict)
    max_output_tokens: int | None = None
    cache_key: str = ""
    state: Any = None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """One reply. ``wire`` is the provider's own text, kept as it came.

    ``complete`` is False when the provider says the reply was cut, refused or filtered: its tool calls must not
    run. Where ``knows_cost`` is True the provider itself states ``cost`` (USD; None = unpriced) and no price list
    is asked; else ``price_context`` holds what the list needs to know beside the usage, such as ``service_tier``.
    """

    wire: str
    text: str
    tool_calls: tuple[ToolRequest, ...]
    stop_reason: str
    complete: bool
    usage: Usage
    model: str = ""
    request_id: str = ""
    output: tuple[Mapping[str, Any], ...] = ()
    cost: Decimal | None = None
    knows_cost: bool = False
    price_context: Mapping[str, str] = field(default_factory=dict)


class Fault(TextChoices):
    """How a failed model call is treated."""

    TRANSIENT = "transient"  # try again after a back-off
    RATE_LIMITED = "rate_limited"  # try again when the provider says
    SPEND_LIMIT = "spend_limit"  # a person must pay or wait: park
    PERMANENT = "permanent"  # the same request fails again: park


class ProviderError(Exception):
    """A model call that gave no usable reply. The message is a sentence for a person and holds no secret.

    ``retry_after`` is in seconds, None when the provider named no wait. ``billed`` is True when the provider may
    have charged for work (a cut reply, a lost connection after sending), False when it refused before any. ``usage`` is
    what was seen of that work before the reply failed or broke off, None where nothing was.
    """

    def __init__(
        self,
        message: str,
        *,
        fault: Fault,
        code: str = "",
        retry_after: float | None = None,
        billed: bool = False,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.fault = fault
        self.code = code
        self.retry_after = retry_after
        self.billed = billed
        self.usage = usage


class Provider(ABC):
    """One vendor's wire. Instances are shared by threads and made once per alias and process."""

    def __init__(self, alias: str, **options: Any) -> None:
        self.alias = alias
        self.options = options

    @property
    @abstractmethod
    def flavour(self) -> str:
        """The wire used for new turns, such as ``"responses"``; stored with each turn."""

    @property
    def pricing_id(self) -> str:
        """genai-prices' id of the vendor, "" when its replies cannot be priced."""
        return ""

    def preload(self) -> None:  # noqa: B027  # most providers have something to import, none has to
        """Import what calls need, so that worker processes forked later share it. Opens nothing."""

    def expected_cost(self, request: ModelRequest) -> Decimal | None:
        """What the call would cost, in USD; None where the provider cannot say and the price list decides."""
        return None

    def output_limit(self, request: ModelRequest) -> int | None:
        """The limit on the reply's tokens that the call sends, None where it sends none."""
        return request.max_output_tokens

    def request_options(self) -> dict[str, Any]:
        """Options that shape a request's body, as JSON; stored with each turn."""
        return {}

    def problems(self) -> list[str]:
        """Sentences about this alias that ``manage.py check`` shows, such as a missing key."""
        return []

    @abstractmethod
    def render(self, request: ModelRequest) -> dict[str, Any]:
        """The request's JSON body: a pure function of ``request``."""

    @abstractmethod
    def parse(self, wire: str, flavour: str) -> ModelReply:
        """Read a stored or fresh reply. Raises ``ProviderError`` when it is no usable reply."""

    @abstractmethod
    def call(
        self, request: ModelRequest, *, timeout: float, on_text: Callable[[str], None] | None = None
    ) -> ModelReply:
        """Make one call, once: no hidden retry. ``timeout`` is in seconds. Raises ``ProviderError``."""
