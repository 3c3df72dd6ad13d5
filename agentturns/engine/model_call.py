"""One model call: its request from the snapshot and the transcript, its estimate before, its charge after."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from django.utils import timezone

from agentturns.conf import conf
from agentturns.definitions.limits import CAPS
from agentturns.definitions.state import TurnState
from agentturns.engine.candidates import Candidate, candidates_of, in_turn, seen_by
from agentturns.engine.ledger import Charge
from agentturns.engine.live_text import listener
from agentturns.engine.prices import prices_for
from agentturns.engine.transcript import Transcript, snapshot_tools
from agentturns.models.exits import Exit, Parked, Yielded
from agentturns.models.step import Step
from agentturns.models.turn import Turn
from agentturns.money.budget import limit_for, spent_on, standing
from agentturns.money.estimate import (
    DEFAULT_REPLY_TOKENS,
    LEAST_USEFUL_REPLY,
    estimate_cost,
    estimate_tokens,
    output_that_fits,
)
from agentturns.money.pricing import Priced, price
from agentturns.providers import get_provider
from agentturns.providers.base import (
    AssistantMessage,
    Fault,
    Message,
    ModelReply,
    ModelRequest,
    ProviderError,
    ToolResults,
    Usage,
    UserMessage,
)
from agentturns.usd import round_usd

logger = logging.getLogger("agentturns")

# How the wires say that the limit on the reply cut it.
CUT_BY_LIMIT: Final = ("max_tokens", "max_output_tokens", "length")


class ModelCall:
    """The next model call of a turn. ``begun`` is a step whose earlier attempt gave no reply.

    Raises ``ConfigurationError`` when the snapshot's provider alias is not configured any more.
    """

    def __init__(
        self, turn: Turn, transcript: Transcript, state: TurnState, begun: Step | None, last: Step | None
    ) -> None:
        self._turn = turn
        self._asked = in_turn(candidates_of(turn), last)
        self._candidate = next((one for one in self._asked if begun is not None and one.takes(begun)), self._asked[0])
        alias, name = self._candidate.alias, self._candidate.name
        self._provider = get_provider(alias)
        self._options = dict(self._candidate.options)
        self._book = prices_for(turn)
        self._at = timezone.now()
        self._reserves = standing(turn, "reserve").value == "worst_case"
        output_limit = self._options.pop("max_reply_tokens", None)
        if output_limit is None and self._reserves:
            # Without a limit of its own no reply has a worst case.
            output_limit = DEFAULT_REPLY_TOKENS
        self.request = ModelRequest(
            model=name,
            flavour=self._candidate.flavour,
            instructions=turn.instructions,
            tools=snapshot_tools(turn.tool_definitions),
            messages=seen_by(self._candidate, transcript.messages),
            options=self._options,
            max_output_tokens=output_limit,
            cache_key=f"session-{turn.session_id}",
            state=state,
        )
        self.step = begun or Step(turn_id=turn.pk, index=turn.step_count + 1, attempts=0)
        self.step.attempts += 1
        self.step.error = ""
        self.step.model = self.step.requested_model = name
        self.step.provider = alias
        self.step.started_at = self._at
        self.step.output_limit = self._provider.output_limit(self.request)
        # Another model counts in other tokens, and is told another conversation.
        own = last if last is not None and self._candidate.takes(last) else None
        self.step.estimated_input_tokens = estimate_input(self.request, own)
        self._lowered = False
        self._shortfall = self._fit_in() if self._reserves else None
        self.step.estimate = self._expected_cost(self.step.output_limit)

    def _expected_cost(self, output_limit: int | None, *, worst_case: bool = False) -> Decimal | None:
        known = self._provider.expected_cost(self.request)
        if known is not None:
            return known
        return estimate_cost(
            self.step.estimated_input_tokens or 0,
            output_limit,
            model=self.request.model,
            pricing_id=self._provider.pricing_id,
            at=self._at,
            options=self._price_options(),
            worst_case=worst_case,
            book=self._book,
            provider=self._provider.alias,
        )

    def _price_options(self, said: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What may select a price: what the request asks for, and before it what the reply ``said``."""
        return {**self._options.get("extra", {}), **self._options, **(said or {})}

    def _fit_in(self) -> str | None:
        """Lower the limit on the reply to what ``max_cost`` has room for; where that is too little, say so."""
        limit = limit_for(self._turn, "max_cost")
        if limit is None:
            return None
        left = Decimal(limit) - Decimal(spent_on(self._turn, "max_cost"))
        most = self.step.output_limit

        def worst(output_limit: int | None) -> Decimal:
            # Without a known price there is no worst case: the step is made, and what it costs is "unpriced" then.
            return self._expected_cost(output_limit, worst_case=True) or Decimal(0)

        if worst(most) <= left:
            return None
        fits = -1 if most is None else output_that_fits(left, most, worst)
        if fits < LEAST_USEFUL_REPLY:
            show = CAPS["max_cost"].show
            return f"the next call could cost up to {show(worst(most))}, {show(max(Decimal(0), left))} is left"
        self.request = replace(self.request, max_output_tokens=fits)
        self._lowered = True
        self.step.output_limit = self._provider.output_limit(self.request)
        return None

    def shortfall(self) -> str | None:
        """Under ``reserve="worst_case"``: why this call could pass ``max_cost``, or None when it cannot.

        A call that fits with a smaller limit on its reply has been given that limit.
        """
        return self._shortfall

    def cut_short(self, reply: ModelReply) -> str | None:
        """Why the reply is cut, where it is the lower limit for ``max_cost``'s sake that cut it."""
        if not self._lowered or reply.complete or reply.stop_reason not in CUT_BY_LIMIT:
            return None
        return f"the reply was cut at {self.step.output_limit:,} tokens, the most that max_cost left room for"

    def make(self) -> ModelReply:
        """Call the model, once. Raises ``ProviderError``, also for what a backend did not foresee."""
        try:
            on_text = listener(self._turn, self.step.index)
            return self._provider.call(self.request, timeout=conf.MODEL_TIMEOUT, on_text=on_text)
        except ProviderError:
            raise
        except Exception as error:
            logger.exception("turn=%s provider=%s failed unexpectedly", self._turn.pk, self._provider.alias)
            raise ProviderError(
                f"The provider {self._provider.alias!r} failed in an unforeseen way ({type(error).__name__}); the "
                "worker's log has the traceback.",
                fault=Fault.PERMANENT,
                code="provider_bug",
                billed=True,
            ) from error

    def charge(self, reply: ModelReply) -> Charge:
        """What the reply cost: known, presumed where the provider gave no usage, or unpriced."""
        if reply.knows_cost and reply.cost is not None:
            return Charge(round_usd(reply.cost), source=self.step.provider)
        if reply.usage.input_tokens is None or reply.usage.output_tokens is None:
            if self.step.estimate is None:
                return Charge(None)
            return Charge(None, presumed=self.step.estimate, source="estimate: the reply carried no usage")
        pricing_id = "" if reply.knows_cost else self._provider.pricing_id
        priced = self._priced(reply.usage, pricing_id, reply.model, reply.price_context)
        return Charge(priced.cost, source=priced.source) if priced else Charge(None)

    def presumed(self, error: ProviderError) -> Decimal:
        """USD presumed for a call without a reply: what was seen of it, else its estimate; 0 where it was refused."""
        if not error.billed:
            return Decimal(0)
        seen = self._priced(error.usage, self._provider.pricing_id) if error.usage is not None else None
        return seen.cost if seen else (self.step.estimate or Decimal(0))

    def _priced(
        self, usage: Usage, pricing_id: str, served: str = "", said: Mapping[str, str] | None = None
    ) -> Priced | None:
        return price(
            usage,
            model=(served, self.request.model),
            pricing_id=pricing_id,
            at=self._at,
            options=self._price_options(said),
            book=self._book,
            provider=self._provider.alias,
        )

    def passed_on(self, wish: Exit) -> tuple[Exit, Candidate | None]:
        """What becomes of ``wish`` after an error of this model, and the model that is asked next.

        Where the turn would park, the next model takes the step at once. Where all have been asked, it parks, and a
        person's retry asks all of them again.
        """
        if not isinstance(wish, Parked) or len(self._asked) == 1:
            return wish, None
        heir = next(iter(self._asked[self._asked.index(self._candidate) + 1 :]), None)
        if heir is None:
            said = f"{wish.message} None of the turn's {len(self._asked)} models could take the step."
            return replace(wish, message=said), self._asked[0]
        logger.warning("turn=%s step=%s passed on to model=%s", self._turn.pk, self.step.index, heir.model_id)
        return Yielded(), heir


def estimate_input(request: ModelRequest, last: Step | None) -> int:
    """Upper estimate of the request's input tokens, from the last step's real usage where there is one."""
    if last is not None and last.input_tokens is not None and last.output_tokens is not None:
        appended = 0
        for message in reversed(request.messages):
            if isinstance(message, AssistantMessage):
                break
            appended += _bytes(message)
        return estimate_tokens(appended, last_input=last.input_tokens, last_output=last.output_tokens)
    tools = sum(len(json.dumps(tool)) for tool in request.tools)
    size = len(request.instructions.encode()) + tools + sum(map(_bytes, request.messages))
    return estimate_tokens(size)


def _bytes(message: Message) -> int:
    match message:
        case UserMessage(text):
            return len(text.encode())
        case ToolResults(results, notice):
            return sum(len(result.text.encode()) for result in results) + len(notice.encode())
        case AssistantMessage():
            return len(message.wire.encode())
    raise AssertionError(message)
