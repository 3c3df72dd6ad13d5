"""Budget changes as an operator sees them: every raise and lowering, by whom and why."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agentturns.admin.filters import CapFilter
from agentturns.admin.formatting import NOTHING, moment, one_line
from agentturns.admin.links import page_of, url_of
from agentturns.admin.read_only import ReadOnlyAdmin
from agentturns.definitions.limits import CAPS
from agentturns.models import BudgetChange, Turn


def shown_value(cap: str, value: str) -> str:
    """A stored cap value as people read it: ``$0.50``, ``1,200 tokens``, "no limit"."""
    if not value:
        return _("no limit")
    if cap not in CAPS:
        return value
    try:
        number = Decimal(value)
    except InvalidOperation:
        return value
    whole = number == number.to_integral_value()
    return CAPS[cap].show(number if cap == "max_cost" else int(number) if whole else float(number))


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One budget change as a line of a table."""

    when: SafeString
    moved: str
    who: str
    why: str


def change_line(change: BudgetChange) -> ChangeLine:
    """What changed, when, by whom and why."""
    old, new = shown_value(change.cap, change.old), shown_value(change.cap, change.new)
    return ChangeLine(
        when=moment(change.at),
        moved=f"{change.cap}: {old} → {new}",
        who=change.by_name or _("trusted code"),
        why=one_line(change.reason, 300) or NOTHING,
    )


class BudgetChangeAdmin(ReadOnlyAdmin):
    """The audit list of budgets. May be subclassed and registered on a site of your own."""

    list_display = ("when", "turn_link", "moved", "who", "why")
    list_display_links = ("when",)
    list_filter = (CapFilter,)

    @admin.display(description=gettext_lazy("when"))
    def when(self, change: BudgetChange) -> SafeString:
        return moment(change.at)

    @admin.display(description=gettext_lazy("turn"))
    def turn_link(self, change: BudgetChange) -> SafeString:
        url = url_of(self.admin_site, "agentturns_turn_change", change.turn_id)
        return format_html('<a href="{}">#{}</a>', url, change.turn_id)

    @admin.display(description=gettext_lazy("change"))
    def moved(self, change: BudgetChange) -> str:
        return change_line(change).moved

    @admin.display(description=gettext_lazy("by"))
    def who(self, change: BudgetChange) -> str:
        return change_line(change).who

    @admin.display(description=gettext_lazy("reason"))
    def why(self, change: BudgetChange) -> str:
        return one_line(change.reason, 120) or NOTHING

    def describe(self, request: HttpRequest, row: BudgetChange) -> dict[str, Any]:
        turn_id = row.turn_id
        return {
            "title": _("Budget change of turn %(turn)s") % {"turn": turn_id},
            "change": row,
            "line": change_line(row),
            "turn_id": turn_id,
            "turn_url": page_of(request, self.admin_site, Turn, turn_id),
        }
