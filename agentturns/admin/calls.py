"""Tool calls as an operator sees them: those that wait for a decision, and each one whole."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast, Substr
from django.http import HttpRequest
from django.urls import path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agentturns.admin.decisions import DecidesCalls
from agentturns.admin.filters import DecisionFilter
from agentturns.admin.formatting import NOTHING, age, excerpt, json_excerpt, moment, one_line, visible
from agentturns.admin.links import page_of, url_of
from agentturns.admin.turn_page import call_card, call_state, decision_card
from agentturns.models import Step, ToolCall, Turn

_SHOWN_ARGUMENTS: Final = 80
_LARGE: Final = ("arguments", "raw_arguments", "result", "output_text", "error")


class CallList(ChangeList):
    """The list reads only the start of each call's arguments."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet:
        calls = super().get_queryset(request, exclude_parameters)
        start = Substr(Cast("arguments", TextField()), 1, 4 * _SHOWN_ARGUMENTS)
        return calls.defer(*_LARGE).annotate(arguments_start=start)


class ToolCallAdmin(DecidesCalls):
    """Tool calls to look at and to decide. May be subclassed and registered on a site of your own."""

    list_display = ("tool", "asked_for", "state", "effect", "turn_link", "note_start", "age")
    list_display_links = ("tool",)
    list_filter = (DecisionFilter, "status", "approval")

    def get_urls(self) -> list[Any]:
        decide = path(
            "<int:call_id>/decide/", self.admin_site.admin_view(self.decide_view), name="agentturns_toolcall_decide"
        )
        return [decide, *super().get_urls()]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return CallList

    def get_ordering(self, request: HttpRequest) -> tuple[str]:
        # Whoever waits longest comes first; of what is over, the newest.
        return ("pk",) if request.GET.get("decision", "awaiting") == "awaiting" else ("-pk",)

    @admin.display(description=gettext_lazy("tool"))
    def tool(self, call: ToolCall) -> SafeString:
        return format_html("<bdi>{}</bdi>", one_line(visible(call.name), 60))

    @admin.display(description=gettext_lazy("arguments"))
    def asked_for(self, call: ToolCall) -> SafeString:
        start = one_line(visible(call.arguments_start), _SHOWN_ARGUMENTS)  # type: ignore[attr-defined]  # annotated
        return format_html("<code><bdi>{}</bdi></code>", start)

    @admin.display(description=gettext_lazy("status"))
    def state(self, call: ToolCall) -> SafeString:
        return call_state(call)

    @admin.display(description=gettext_lazy("turn"))
    def turn_link(self, call: ToolCall) -> SafeString:
        url = url_of(self.admin_site, "agentturns_turn_change", call.turn_id)
        return format_html('<a href="{}">#{}</a>', url, call.turn_id)

    @admin.display(description=gettext_lazy("note"))
    def note_start(self, call: ToolCall) -> SafeString:
        return format_html("<bdi>{}</bdi>", one_line(call.note, 60) or NOTHING)

    @admin.display(description=gettext_lazy("age"))
    def age(self, call: ToolCall) -> SafeString:
        return age(call.created_at)

    def describe(self, request: HttpRequest, row: ToolCall) -> dict[str, Any]:
        turn = row.turn
        card = call_card(row, "", limit=None)
        if not turn.is_finished:
            card = decision_card(row, "", request.user, limit=None)
        return {
            "title": _("Call of %(tool)s in turn %(turn)s") % {"tool": one_line(row.name, 80), "turn": row.turn_id},
            "card": card,
            "call": row,
            "turn": turn,
            "turn_url": page_of(request, self.admin_site, Turn, row.turn_id),
            "step_url": page_of(request, self.admin_site, Step, row.step_id),
            "input": excerpt(turn.input),
            "context": json_excerpt(turn.context) if turn.context else None,
            "result": json_excerpt(row.result, None) if row.result not in (None, row.output_text) else None,
            "raw": excerpt(visible(row.raw_arguments), None) if row.raw_arguments else None,
            "created": moment(row.created_at),
            "decided": moment(row.decided_at),
            "expires": row.expires_at,
        }
