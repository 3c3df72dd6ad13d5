"""Addresses of pages on one admin site, which may be a project's own and may lack some of our pages."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.db.models import Model
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.http import urlencode


def url_of(site: AdminSite, name: str, *args: Any, **query: Any) -> str:
    """The address of the page called ``name`` on ``site``, "" where the site has none."""
    try:
        url = reverse(f"admin:{name}", args=args, current_app=site.name)
    except NoReverseMatch:
        return ""
    return f"{url}?{urlencode(query)}" if query else url


def page_of(request: HttpRequest, site: AdminSite, model: type[Model], pk: Any) -> str:
    """The address of a row's own page, "" where ``site`` has none or the user may not see it."""
    if pk is None or not site.is_registered(model):
        return ""
    if not site.get_model_admin(model).has_view_permission(request):
        return ""
    return url_of(site, f"{model._meta.app_label}_{model._meta.model_name}_change", pk)
