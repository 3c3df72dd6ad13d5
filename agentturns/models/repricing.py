"""Repricing: steps that had no known price get one once the operator enters it, and their turns go on.

A step that has a price keeps it. The counters of a running turn are its worker's, in memory and written whole, so a
running turn is left alone here and repriced in the transaction in which it leaves its worker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from django.db import Error
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce, NullIf
from django.utils import timezone

from agentturns.exceptions import Conflict
from agentturns.models.lifecycle import after_commit, locked, requeue, swap
from agentturns.models.price import Price, read_book
from agentturns.models.states import ParkReason, Status, StepStatus
from agentturns.models.step import Step
from agentturns.money.estimate import DEFAULT_REPLY_TOKENS
from agentturns.money.price_book import PriceBook, PriceRule
from agentturns.providers.base import Usage
from agentturns.signals import turn_resumed

if TYPE_CHECKING:
    from agentturns.models.turn import Turn

logger = logging.getLogger("agentturns")

# One request, or one sweep, does not work on more turns than this; the next sweep goes on.
MOST_TURNS: Final = 500
UNPRICED: Final = Q(status=StepStatus.COMPLETED, cost__isnull=True, price_source="")
_SIZED: Final = Q(input_tokens__isnull=False, output_tokens__isnull=False) | Q(estimated_input_tokens__isnull=False)


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying a price did. ``left``: there is more, which the sweep goes on with."""

    steps: int
    resumed: int
    left: bool


@dataclass(frozen=True, slots=True)
class Missing:
    """A model for whose price so many turns wait, parked."""

    provider: str
    model: str
    turns: int


@dataclass(frozen=True, slots=True)
class _Found:
    """What the prices found for steps of one turn add to its counters."""

    steps: int = 0
    cost: Decimal = Decimal(0)
    presumed: Decimal = Decimal(0)

    def added_to(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """The turn's counters with these prices in them."""
        return {
            "cost": counters["cost"] + self.cost,
            "presumed_cost": counters["presumed_cost"] + self.presumed,
            "unpriced_steps": counters["unpriced_steps"] - self.steps,
        }


def reprice(turn: Turn, book: PriceBook | None = None) -> tuple[int, bool]:
    """Give the unpriced steps of a turn that no worker runs the prices that ``book`` has for them.

    A turn parked as ``unpriced`` goes back to the queue once none is left. Returns how many steps got a price and
    whether the turn was resumed. Raises ``Conflict`` where the turn does not exist any more.
    """
    with locked(turn.pk, turn.session_id) as held:
        if held.status == Status.RUNNING or not held.unpriced_steps:
            return 0, False
        found = _price_steps(held, read_book() if book is None else book)
        counters = found.added_to(_counters(held))
        resumes = held.park_reason == ParkReason.UNPRICED and not counters["unpriced_steps"]
        if resumes:
            requeue(held, Status.PARKED, **counters)
            after_commit(turn_resumed, held)
        elif found.steps:
            swap(held, held.status, **counters)
    if found.steps or resumes:
        level = logging.INFO if resumes else logging.DEBUG
        logger.log(level, "turn=%s repriced steps=%s resumed=%s", turn.pk, found.steps, resumes)
    return found.steps, resumes


def repriced_on_leaving(turn: Turn, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The counters of a turn that leaves its worker, with the prices entered while it ran; nothing where none fits.

    The caller holds the turn's lock and is about to write ``columns``; what is returned goes with them.
    """
    counters = {name: columns.get(name, now) for name, now in _counters(turn).items()}
    if not counters["unpriced_steps"]:
        return {}
    found = _price_steps(turn, read_book())
    return found.added_to(counters) if found.steps else {}


def reprice_covered(price: Price) -> Applied:
    """Reprice the turns with steps that ``price`` covers, each in its own transaction, those that wait first."""
    turns = list(_turns_with(price)[: MOST_TURNS + 1])
    book = read_book()
    steps = resumed = failed = 0
    for turn in turns[:MOST_TURNS]:
        try:
            priced, resumes = reprice(turn, book)
        except (Error, Conflict) as error:
            logger.warning("turn=%s price=%s not repriced yet error=%s", turn.pk, price.pk, type(error).__name__)
            failed += 1
        else:
            steps, resumed = steps + priced, resumed + resumes
    left = failed > 0 or len(turns) > MOST_TURNS
    if not left:
        _settle(price)
    logger.info("price=%s applied steps=%s resumed=%s left=%s", price.pk, steps, resumed, left)
    return Applied(steps, resumed, left)


def apply_pending() -> int:
    """Apply the prices that are not wholly applied; how many steps got a price. The sweep calls it."""
    return sum(price.apply().steps for price in Price.objects.filter(applied_at=None).order_by("pk"))


def missing_prices(most: int = 20) -> list[Missing]:
    """The models for whose price parked turns wait, those that most turns wait for first."""
    from agentturns.models.turn import Turn

    waiting = Turn.objects.parked(ParkReason.UNPRICED).values("pk")
    name = Coalesce(NullIf("requested_model", Value("")), "model")
    rows = (
        Step.objects.filter(UNPRICED, turn__in=waiting)
        .values("provider", name=name)
        .annotate(turns=Count("turn", distinct=True))
        .order_by("-turns", "provider", "name")
    )
    return [Missing(row["provider"], row["name"], row["turns"]) for row in rows[:most]]


def _counters(turn: Turn) -> dict[str, Any]:
    return {name: getattr(turn, name) for name in ("cost", "presumed_cost", "unpriced_steps")}


def _price_steps(turn: Turn, book: PriceBook) -> _Found:
    """Write a price to each unpriced step that ``book`` has one for. The turn's lock is held."""
    found = _Found()
    for step in Step.objects.filter(UNPRICED, turn=turn.pk).order_by("index").defer("wire", "output"):
        rule = book.find(step.provider, (step.model, step.requested_model), step.started_at)
        if rule is not None and (columns := _priced(step, rule)) is not None:
            Step.objects.filter(UNPRICED, pk=step.pk).update(**columns)
            found = _Found(
                found.steps + 1,
                found.cost + (columns["cost"] or 0),
                found.presumed + columns["presumed_cost"] - step.presumed_cost,
            )
    return found


def _priced(step: Step, rule: PriceRule) -> dict[str, Any] | None:
    """The columns of ``step`` at the price of ``rule``: its cost, or what is presumed where its usage is not known."""
    cost = rule.rates.cost(
        Usage(
            input_tokens=step.input_tokens,
            cached_input_tokens=step.cached_input_tokens,
            cache_write_tokens=step.cache_write_tokens,
            output_tokens=step.output_tokens,
            cache_write_1h_tokens=step.cache_write_1h_tokens,
        )
    )
    if cost is not None:
        return {"cost": cost, "presumed_cost": step.presumed_cost, "price_source": _source(rule)}
    if step.estimated_input_tokens is None:
        return None
    reply = DEFAULT_REPLY_TOKENS if step.output_limit is None else step.output_limit
    presumed = rule.rates.cost(Usage(input_tokens=step.estimated_input_tokens, output_tokens=reply)) or Decimal(0)
    return {
        "cost": None,
        "presumed_cost": step.presumed_cost + presumed,
        "price_source": _source(rule, "estimate: the reply carried no usage; "),
    }


def _source(rule: PriceRule, said: str = "") -> str:
    return f"{said}{rule}"[:200]


def _turns_with(price: Price) -> QuerySet[Turn]:
    """Turns with steps that ``price`` covers and no worker at work, those that wait for a price first."""
    from agentturns.models.turn import Turn

    rule = price.rule()
    unpriced = Step.objects.filter(UNPRICED, _SIZED, provider=price.provider)
    if price.effective_from is not None:
        unpriced = unpriced.filter(started_at__gte=price.effective_from)
    turns = Turn.objects.filter(unpriced_steps__gt=0).exclude(status=Status.RUNNING)
    names = unpriced.filter(turn__in=turns.values("pk")).values_list("model", "requested_model").distinct()
    covered = Q(pk__in=())
    for model, requested in names.order_by():
        if rule.names_any(model, requested):
            covered |= Q(model=model, requested_model=requested)
    waits = F("parked_at").asc(nulls_last=True)
    return turns.filter(Exists(unpriced.filter(covered, turn=OuterRef("pk")))).order_by(waits, "pk").only("session_id")


def _settle(price: Price) -> None:
    """Mark the price as applied, unless somebody changed it meanwhile."""
    rule = price.rule()
    unchanged = Price.objects.filter(
        pk=price.pk,
        provider=rule.provider,
        model=rule.model,
        effective_from=rule.effective_from,
        **asdict(rule.rates),
    )
    unchanged.update(applied_at=timezone.now())
