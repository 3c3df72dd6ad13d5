"""Sessions as an operator sees them: who talks with which agent, and the turns so far."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models.functions import Substr
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agentturns.admin.budget_panel import budget_cell, reason_words
from agentturns.admin.filters import AgentFilter, TenantFilter
from agentturns.admin.formatting import age, badge, excerpt, json_excerpt, moment
from agentturns.admin.links import page_of
from agentturns.admin.read_only import ReadOnlyAdmin
from agentturns.models import Session, Turn

TURNS_PER_PAGE: Final = 20
_SHOWN_TEXT: Final = 2_000


class SessionAdmin(ReadOnlyAdmin):
    """Sessions to look at. May be subclassed and registered on a site of your own."""

    list_display = ("number", "agent", "tenant", "user_name", "age")
    list_display_links = ("number",)
    list_filter = (AgentFilter, TenantFilter)

    @admin.display(description=gettext_lazy("session"))
    def number(self, session: Session) -> SafeString:
        return format_html("#{}", session.pk)

    @admin.display(description=gettext_lazy("age"))
    def age(self, session: Session) -> SafeString:
        return age(session.created_at)

    def describe(self, request: HttpRequest, row: Session) -> dict[str, Any]:
        pages = Paginator(_turns(row), TURNS_PER_PAGE)
        page = pages.get_page(request.GET.get("turns") or pages.num_pages)
        return {
            "title": _("Session %(id)s with %(agent)s") % {"id": row.pk, "agent": row.agent},
            "session": row,
            "created": moment(row.created_at),
            "metadata": json_excerpt(row.metadata) if row.metadata else None,
            "turns": page,
            "turn_cards": [self._card(request, turn) for turn in page.object_list],
        }

    def _card(self, request: HttpRequest, turn: Any) -> dict[str, Any]:
        return {
            "turn": turn,
            "url": page_of(request, self.admin_site, Turn, turn.pk),
            "state": badge(turn.status, turn.get_status_display()),
            "reason": reason_words(turn),
            "input": excerpt(turn.input_start),
            "answer": excerpt(turn.answer_start),
            "budget": budget_cell(turn),
            "age": moment(turn.created_at),
        }


def _turns(session: Session) -> Any:
    large = ("input", "message", "flags", "answer", "instructions", "tool_definitions", "request_options", "context")
    return (
        Turn.objects.filter(session=session)
        .order_by("index")
        .defer(*large)
        .annotate(input_start=Substr("input", 1, _SHOWN_TEXT), answer_start=Substr("answer", 1, _SHOWN_TEXT))
    )
