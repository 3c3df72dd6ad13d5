"""List filters that never ask a large table for its distinct values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from agentturns.definitions.agent import registered_agents
from agentturns.definitions.limits import CAPS


class TextFilter(admin.SimpleListFilter):
    """A field to write a value in, for columns whose values cannot be listed."""

    template = "admin/agentturns/text_filter.html"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return []

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: Any) -> Iterator[Any]:
        yield {
            "name": self.parameter_name,
            "value": self.value() or "",
            "others": [pair for pair in changelist.params.items() if pair[0] != self.parameter_name],
            "clear": changelist.get_query_string(remove=[self.parameter_name]),
        }

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        value = self.value()
        return queryset.filter(**{str(self.parameter_name): value}) if value else queryset


class TenantFilter(TextFilter):
    """Rows of one tenant, written in full."""

    title = _("tenant")
    parameter_name = "tenant"


class DeclaredFilter(admin.SimpleListFilter):
    """One of the values that the code declares today, or any other that the address names."""

    def declared(self) -> list[str]:
        """The values to offer."""
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        offered = self.declared()
        asked = request.GET.get(str(self.parameter_name), "")
        if asked and asked not in offered:
            offered = [*offered, asked]
        return [(value, value) for value in offered]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        value = self.value()
        return queryset.filter(**{str(self.parameter_name): value}) if value else queryset


class AgentFilter(DeclaredFilter):
    """Rows of one agent; the agents declared today are offered."""

    title = _("agent")
    parameter_name = "agent"

    def declared(self) -> list[str]:
        return sorted(registered_agents())


class ModelFilter(DeclaredFilter):
    """Turns of one model; the models of the agents declared today are offered."""

    title = _("model")
    parameter_name = "model"

    def declared(self) -> list[str]:
        return sorted({agent.model_id for agent in registered_agents().values()})


class CapFilter(DeclaredFilter):
    """Budget changes of one cap."""

    title = _("cap")
    parameter_name = "cap"

    def declared(self) -> list[str]:
        return [*CAPS, "unpriced"]


class DecisionFilter(admin.SimpleListFilter):
    """Tool calls that wait for a person, unless all are asked for."""

    title = _("decision")
    parameter_name = "decision"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("awaiting", _("Awaiting decision")), ("decided", _("Decided by a person")), ("all", _("All calls"))]

    def value(self) -> str:
        return super().value() or "awaiting"

    def choices(self, changelist: Any) -> Iterator[Any]:
        for lookup, title in self.lookup_choices:
            yield {
                "selected": self.value() == lookup,
                "query_string": changelist.get_query_string({self.parameter_name: lookup}),
                "display": title,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        match self.value():
            case "awaiting":
                return queryset.awaiting_decision()  # type: ignore[attr-defined]  # ToolCall's own queryset
            case "decided":
                return queryset.filter(decided_at__isnull=False)
        return queryset
