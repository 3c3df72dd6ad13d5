"""What every page here shares: rows are read, never added, edited or deleted through a form."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import PAGE_VAR
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse

from agentturns.admin.paging import NearbyPaginator


class ReadOnlyAdmin(admin.ModelAdmin):
    """Rows to look at. What a person does to them are verbs with permissions of their own.

    A page is drawn by the template ``admin/agentturns/<model>/change_form.html`` from what :meth:`describe` returns.
    """

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_max_show_all = 0
    sortable_by: ClassVar[tuple[str, ...]] = ()  # another order than the index's would sort the whole table
    ordering = ("-pk",)

    class Media:
        css = {"all": ("agentturns/admin.css",)}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_paginator(
        self,
        request: HttpRequest,
        queryset: QuerySet,
        per_page: int,
        orphans: int = 0,
        allow_empty_first_page: bool = True,
    ) -> Paginator:
        asked = request.GET.get(PAGE_VAR, "")
        page = int(asked) if asked.isdecimal() and len(asked) < 10 else 1
        return NearbyPaginator(queryset, per_page, orphans, allow_empty_first_page, page=page)

    def not_there(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Back to the index, with a message that the row does not exist."""
        return self._get_obj_does_not_exist_redirect(request, self.opts, str(pk))  # type: ignore[attr-defined]

    def describe(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The template's context for the page of ``row``."""
        return {"title": str(row)}

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> Any:
        if obj is not None:
            context |= {"subtitle": None, **self.describe(request, obj)}
        return super().render_change_form(request, context, add, change, form_url, obj)
