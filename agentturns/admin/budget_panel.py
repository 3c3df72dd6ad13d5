"""A turn's budget as an operator reads it: each cap with what is spent, the limit, and where the limit comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from agentturns.admin.formatting import progress, with_unpriced
from agentturns.definitions.limits import CAPS, CapValue
from agentturns.models import BudgetChange, Turn
from agentturns.models.states import ParkReason
from agentturns.money.budget import UNPRICED, policy_for, standing

CAP_WORDS: Final[dict[str, Any]] = {
    "max_cost": gettext_lazy("Cost"),
    "max_input_tokens": gettext_lazy("Input tokens"),
    "max_new_input_tokens": gettext_lazy("New input tokens"),
    "max_output_tokens": gettext_lazy("Output tokens"),
    "timeout": gettext_lazy("Active time"),
    "max_tool_calls": gettext_lazy("Tool calls"),
    "max_steps": pgettext_lazy("of a turn", "Steps"),
}
# Money first: it is what people ask for first.
CAP_ORDER: Final = tuple(CAP_WORDS)


@dataclass(frozen=True, slots=True)
class CapFigures:
    """One cap of one turn. ``source`` says in words who set the limit.

    ``stops``: it holds the turn up now. ``fails``: a breach fails the turn where it would else park. ``unpriced``:
    what is spent is not known, for want of a price.
    """

    cap: str
    label: str
    spent: CapValue
    limit: CapValue | None
    shown_spent: str
    shown_limit: str
    source: str
    stops: bool
    fails: bool
    unpriced: bool = False

    @property
    def figures(self) -> str:
        """``$0.2612 of $0.25``, or what is spent where nothing limits it."""
        if self.limit is None:
            return self.shown_spent
        if self.unpriced:
            return _("unpriced, limit %(limit)s") % {"limit": self.shown_limit}
        return _("%(spent)s of %(limit)s") % {"spent": self.shown_spent, "limit": self.shown_limit}

    @property
    def bar(self) -> SafeString:
        """Spent against limit as a progress element; nothing without a limit."""
        return progress(self.spent, self.limit, f"{self.label}: {self.figures}")


def cap_figures(turn: Turn, cap: str, changes: Iterable[BudgetChange] = ()) -> CapFigures:
    """The figures of ``cap``. Costs no query; ``changes`` (newest first) names who last set it."""
    spent, now = turn.spent(cap), standing(turn, cap)
    limit = now.value
    return CapFigures(
        cap=cap,
        label=str(CAP_WORDS[cap]),
        spent=spent,
        limit=limit,
        shown_spent=_shown_spent(turn, cap, spent, limit),
        shown_limit=_("no limit") if limit is None else CAPS[cap].show(limit),
        source=_source(turn, cap, now.source, changes),
        stops=cap in _stopping(turn),
        fails=limit is not None and policy_for(turn, cap) == "fail",
        unpriced=cap == "max_cost" and turn.unpriced_steps > 0 and not spent,
    )


def all_cap_figures(turn: Turn, changes: Iterable[BudgetChange] = ()) -> list[CapFigures]:
    """The figures of every cap, money first."""
    return [cap_figures(turn, cap, changes) for cap in CAP_ORDER]


def failing_cap(turn: Turn) -> str:
    """The cap that failed this turn, "" where none did."""
    if turn.status != Turn.Status.FAILED:
        return ""
    cap = "max_tool_calls" if turn.error_code == "tool_limit" else turn.error_code
    return cap if cap in CAPS or cap == UNPRICED else ""


def unpriced_stops(turn: Turn) -> bool:
    """Whether steps without a known price stand between this turn and going on."""
    if not turn.unpriced_steps or turn.limit("max_cost") is None:
        return False
    return standing(turn, UNPRICED).value != "allow"


def budget_cell(turn: Turn) -> SafeString:
    """Spent against limit for a list: money, and the cap that holds the turn up where it is another one."""
    shown = [cap_figures(turn, "max_cost")]
    held_by = turn.park_reason or failing_cap(turn)
    if held_by in CAPS and held_by != "max_cost":
        shown.insert(0, cap_figures(turn, held_by))
    return format_html_join(
        "", '<div class="agentturns-figures">{} {}</div>', ((row.figures, row.bar) for row in shown)
    )


def _shown_spent(turn: Turn, cap: str, spent: CapValue, limit: CapValue | None) -> str:
    if cap == "max_cost":
        shown = with_unpriced(CAPS[cap].show(spent), turn.cost + turn.presumed_cost, turn.unpriced_steps)
        return shown if limit is not None else _("%(spent)s, no limit") % {"spent": shown}
    # "12,000 of 10,000 tokens" reads better than the unit twice.
    return CAPS[cap].show(spent) if limit is None else CAPS[cap].show(spent).rsplit(" ", 1)[0]


def _stopping(turn: Turn) -> set[str]:
    """The caps that hold this turn up now; a step without a price does so by way of ``max_cost``."""
    held_by = {turn.park_reason, failing_cap(turn)}
    return held_by | {"max_cost"} if UNPRICED in held_by else held_by


def _source(turn: Turn, cap: str, source: str, changes: Iterable[BudgetChange]) -> str:
    match source:
        case "override":
            who = next((change.by_name for change in changes if change.cap == cap), "")
            return _("set on this turn by %(who)s") % {"who": who} if who else _("set on this turn")
        case "turn":
            return _("given when the turn was started")
        case "agent":
            return _("agent %(name)s") % {"name": turn.agent}
        case "settings":
            return "AGENTTURNS['DEFAULT_LIMITS']"
    return ""


def held_by_budget(turn: Turn) -> bool:
    """Whether a raise moves this turn on: parked or failed by a budget."""
    return turn.budget_parked or failing_cap(turn) != ""


def reason_words(turn: Turn) -> str:
    """Why the turn is parked or failed, in a few words; "" otherwise."""
    if turn.park_reason:
        return str(dict(ParkReason.choices).get(turn.park_reason, turn.park_reason))
    cap = failing_cap(turn)
    if cap:
        return str(dict(ParkReason.choices).get(cap, cap))
    return turn.error_code if turn.status == Turn.Status.FAILED else ""
