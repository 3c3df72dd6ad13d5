"""Turns as an operator sees them: the list and the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.db.models.functions import Substr
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.urls import path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from agentturns.admin.budget_changes import change_line
from agentturns.admin.budget_panel import all_cap_figures, budget_cell, reason_words, unpriced_stops
from agentturns.admin.decisions import EndsAndRetries
from agentturns.admin.filters import AgentFilter, ModelFilter, TenantFilter
from agentturns.admin.formatting import EXCERPT, NOTHING, age, badge, excerpt, json_excerpt, moment, one_line, seconds
from agentturns.admin.links import page_of, url_of
from agentturns.admin.raise_budget import RaisesBudgets
from agentturns.admin.turn_page import open_decisions, step_cards, steps_page
from agentturns.admin.ways_on import WaysOn, ways_on
from agentturns.models import Session, Turn

_SHOWN_INPUT: Final = 60
_PK: Final = re.compile(r"[0-9]{1,18}")
_NUMBER: Final = re.compile(r"#?[0-9]{1,18}")
# Columns of a turn that may be large and that no list shows.
_LARGE: Final = (
    "input",
    "message",
    "flags",
    "answer",
    "instructions",
    "tool_definitions",
    "request_options",
    "context",
    "error_message",
    "acted_reason",
)


class TurnList(ChangeList):
    """The list reads only the start of each input, and none of the other large columns."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet:
        turns = super().get_queryset(request, exclude_parameters)
        return turns.defer(*_LARGE).annotate(input_start=Substr("input", 1, 4 * _SHOWN_INPUT))


class TurnAdmin(RaisesBudgets, EndsAndRetries):
    """Turns to look at and to move on. May be subclassed and registered on a site of your own."""

    actions = ("raise_budget",)
    list_display = ("number", "state", "budget", "who", "age")
    list_display_links = ("number",)
    list_filter = ("status", "park_reason", AgentFilter, TenantFilter, ModelFilter)
    search_fields = ("input",)
    search_help_text = gettext_lazy("The text of a request, or a turn's number: #12 finds turn 12 alone.")

    def get_urls(self) -> list[Any]:
        views = {
            "raise": self.raise_view,
            "lower": self.lower_view,
            "cancel": self.cancel_view,
            "retry": self.retry_view,
        }
        own: list[Any] = [
            path(f"<int:turn_id>/{name}/", self.admin_site.admin_view(view), name=f"agentturns_turn_{name}")
            for name, view in views.items()
        ]
        return own + super().get_urls()

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return TurnList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not all(_PK.fullmatch(pk) for pk in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            return HttpResponseBadRequest(_("A chosen turn's number is not a number."))
        asks_raise = request.method == "POST" and request.POST.get("action") == "raise_budget"
        if asks_raise and not self.has_raise_budget_permission(request):
            raise PermissionDenied
        return super().changelist_view(request, extra_context)

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        columns = list(super().get_list_display(request))
        columns.insert(columns.index("state") + 1 if "state" in columns else 0, _to_do(self.admin_site, request))
        return columns

    def get_search_results(self, request: HttpRequest, queryset: QuerySet, search_term: str) -> tuple[QuerySet, bool]:
        term = search_term.strip()
        if not _NUMBER.fullmatch(term):
            return super().get_search_results(request, queryset, search_term)
        by_number = Q(pk=int(term.removeprefix("#")))
        return queryset.filter(by_number if term.startswith("#") else by_number | Q(input__icontains=term)), False

    @admin.display(description=gettext_lazy("turn"))
    def number(self, turn: Turn) -> SafeString:
        start = one_line(turn.input_start, _SHOWN_INPUT)  # type: ignore[attr-defined]  # annotated by TurnList
        return format_html('#{} <bdi class="agentturns-input" dir="auto">{}</bdi>', turn.pk, start)

    @admin.display(description=gettext_lazy("status"))
    def state(self, turn: Turn) -> SafeString:
        kind = "stopping" if turn.cancel_requested_at and not turn.is_finished else turn.status
        words = _("canceling") if kind == "stopping" else turn.get_status_display()
        reason = reason_words(turn)
        if not reason:
            return badge(kind, words)
        return format_html('{} <span class="agentturns-reason">{}</span>', badge(kind, words), reason)

    @admin.display(description=gettext_lazy("agent, tenant"))
    def who(self, turn: Turn) -> SafeString:
        if not turn.tenant:
            return format_html("<bdi>{}</bdi>", turn.agent)
        url = url_of(self.admin_site, "agentturns_turn_changelist", tenant=turn.tenant)
        return format_html(
            '<bdi>{}</bdi> <a class="agentturns-tenant" href="{}"><bdi>{}</bdi></a>',
            turn.agent,
            url,
            one_line(turn.tenant, 40),
        )

    @admin.display(description=gettext_lazy("spent of limit"))
    def budget(self, turn: Turn) -> SafeString:
        return format_html('{}<span class="agentturns-used">{}</span>', budget_cell(turn), _used(turn))

    @admin.display(description=gettext_lazy("age"))
    def age(self, turn: Turn) -> SafeString:
        return age(turn.created_at)

    def describe(self, request: HttpRequest, row: Turn) -> dict[str, Any]:
        page_for: Callable[..., str] = partial(page_of, request, self.admin_site)
        ways = ways_on(row, request.user)
        changes = list(row.budget_changes.order_by("-pk")[:100])
        steps = steps_page(row, request.GET.get("steps", ""))
        return {
            "title": _("Turn %(id)s of %(agent)s") % {"id": row.pk, "agent": row.agent},
            "turn": row,
            "state": self.state(row),
            "waiting_for": row.waiting_for,
            "stands": _stands(row),
            "ways": ways,
            "decisions": open_decisions(row, page_for, request.user) if row.park_reason else [],
            "caps": all_cap_figures(row, changes),
            "unpriced_stops": unpriced_stops(row),
            "used": _used(row),
            "active": seconds(row.active_seconds),
            "input": excerpt(row.input, 20_000),
            "message": excerpt(row.message, 20_000) if row.message not in ("", row.input) else None,
            "flags": json_excerpt(row.flags) if row.flags else None,
            "answer": excerpt(row.answer, 20_000),
            "steps": steps,
            "step_cards": step_cards(row, steps, page_for, limit=EXCERPT),
            "changes": [change_line(change) for change in changes],
            "created": moment(row.created_at),
            "acted": moment(row.acted_at),
            "finished": moment(row.finished_at),
            "parked": moment(row.parked_at),
            "session_url": page_for(Session, row.session_id),
            "context": json_excerpt(row.context) if row.context else None,
            "instructions": excerpt(row.instructions),
            "tool_definitions": json_excerpt(_parsed(row.tool_definitions)) if row.tool_definitions else None,
        }


def _to_do(site: admin.AdminSite, request: HttpRequest) -> Callable[[Turn], SafeString]:
    """The column that leads to what this user can do about each turn."""

    @admin.display(description=gettext_lazy("to do"))
    def to_do(turn: Turn) -> SafeString:
        name, words = _main_way(ways_on(turn, request.user))
        if not name:
            return SafeString(NOTHING)
        return format_html('<a class="agentturns-way" href="{}">{}</a>', url_of(site, name, turn.pk), words)

    return to_do


def _main_way(ways: WaysOn) -> tuple[str, str]:
    if ways.raise_budget:
        return "agentturns_turn_raise", _("Raise budget")
    if ways.decide:
        return "agentturns_turn_change", _("Decide")
    if ways.retry:
        return "agentturns_turn_change", _("Retry")
    return "", ""


def _used(turn: Turn) -> str:
    steps = ngettext("%(count)d step", "%(count)d steps", turn.step_count) % {"count": turn.step_count}
    tokens = _("%(count)s tokens") % {"count": f"{turn.input_tokens + turn.output_tokens:,}"}
    return f"{steps} · {tokens}"


def _stands(turn: Turn) -> str:
    """Where a turn stands that waits for nobody, as a sentence."""
    if turn.cancel_requested_at is not None and not turn.is_finished:
        return _("It was asked to stop and does so after its current call.")
    match turn.status:
        case Turn.Status.RUNNING:
            return _("A worker runs it.")
        case Turn.Status.COMPLETED:
            return _("It is completed.")
    return turn.error_message


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
