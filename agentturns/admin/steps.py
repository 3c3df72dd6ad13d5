"""Steps as an operator sees them: one model call whole, reached from its turn."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agentturns.admin.formatting import NOTHING, moment, step_cost
from agentturns.admin.links import page_of, url_of
from agentturns.admin.read_only import ReadOnlyAdmin
from agentturns.admin.turn_page import step_card, tokens
from agentturns.models import Step, Turn
from agentturns.usd import show_usd


class StepAdmin(ReadOnlyAdmin):
    """Steps to look at. They are not on the admin's index, as each belongs to its turn's page."""

    list_display = ("number", "turn_link", "model", "status", "spent")
    list_display_links = ("number",)

    def get_model_perms(self, request: HttpRequest) -> dict[str, bool]:
        return {}

    def get_queryset(self, request: HttpRequest) -> QuerySet:
        return super().get_queryset(request).defer("wire")

    @admin.display(description=gettext_lazy("step"))
    def number(self, step: Step) -> SafeString:
        return format_html("{}", step.index)

    @admin.display(description=gettext_lazy("turn"))
    def turn_link(self, step: Step) -> SafeString:
        url = url_of(self.admin_site, "agentturns_turn_change", step.turn_id)
        return format_html('<a href="{}">#{}</a>', url, step.turn_id)

    @admin.display(description=gettext_lazy("cost"))
    def spent(self, step: Step) -> str:
        return step_cost(step.cost, step.presumed_cost, step.priced, step.status == Step.Status.COMPLETED)

    def describe(self, request: HttpRequest, row: Step) -> dict[str, Any]:
        return {
            "title": _("Step %(index)s of turn %(turn)s") % {"index": row.index, "turn": row.turn_id},
            "card": step_card(row, "", limit=None),
            "step": row,
            "turn_url": page_of(request, self.admin_site, Turn, row.turn_id),
            "used": [
                (_("Input tokens"), tokens(row.input_tokens)),
                (_("of them read from cache"), tokens(row.cached_input_tokens)),
                (_("of them written to cache"), tokens(row.cache_write_tokens)),
                (_("Output tokens"), tokens(row.output_tokens)),
                (_("of them reasoning"), tokens(row.reasoning_tokens)),
                (_("Output limit sent"), tokens(row.output_limit)),
            ],
            "estimate": NOTHING if row.estimate is None else show_usd(row.estimate),
            "started": moment(row.started_at),
        }
