"""Prices as an operator keeps them: what the public list does not know, or has otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from agentturns.admin.formatting import moment, one_line
from agentturns.admin.links import url_of
from agentturns.conf import conf
from agentturns.models import Price
from agentturns.models.repricing import Applied, Missing, missing_prices
from agentturns.usd import show_usd


class PriceForm(forms.ModelForm):
    """A price, for one of the aliases that the settings have today or the one it was made for."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "provider" not in self.fields:
            return  # the page of somebody who may only look
        known = self.instance.provider or self.initial.get("provider") or ""
        aliases = sorted({*conf.PROVIDERS, *([known] if known else [])})
        self.fields["provider"] = forms.ChoiceField(
            label=self.fields["provider"].label,
            help_text=self.fields["provider"].help_text,
            choices=[("", "---------"), *((alias, alias) for alias in aliases)],
        )


class PriceAdmin(admin.ModelAdmin):
    """The operator's prices, to add, change and delete. May be subclassed and registered on a site of your own."""

    form = PriceForm
    list_display = ("price", "since", "paid_for_input", "cache_read", "written", "written_1h", "paid_for_output", "why")
    list_filter = ("provider",)
    search_fields = ("provider", "model", "note")
    sortable_by = ()
    ordering = ("provider", "model", "-effective_from", "-pk")
    show_full_result_count = False
    fieldsets = (
        (None, {"fields": ("provider", "model", "effective_from")}),
        (
            gettext_lazy("USD per million tokens"),
            {
                "fields": ("input", "cached_input", "cache_write", "cache_write_1h", "output"),
                "description": gettext_lazy(
                    "They go before the public list's, whatever the service tier. Steps that have a price keep it."
                ),
            },
        ),
        (None, {"fields": ("note",)}),
    )

    class Media:
        css = {"all": ("agentturns/admin.css",)}

    @admin.display(description=gettext_lazy("price"))
    def price(self, row: Price) -> SafeString:
        return format_html("<bdi>{}</bdi>: <bdi>{}</bdi>", row.provider, row.model)

    @admin.display(description=gettext_lazy("effective from"))
    def since(self, row: Price) -> SafeString | str:
        return moment(row.effective_from) if row.effective_from else _("always")

    @admin.display(description=gettext_lazy("input"))
    def paid_for_input(self, row: Price) -> str:
        return show_usd(row.input)

    @admin.display(description=gettext_lazy("read from cache"))
    def cache_read(self, row: Price) -> str:
        return _("as input") if row.cached_input is None else show_usd(row.cached_input)

    @admin.display(description=gettext_lazy("written for 5 min"))
    def written(self, row: Price) -> str:
        return _("as input") if row.cache_write is None else show_usd(row.cache_write)

    @admin.display(description=gettext_lazy("written for 1 h"))
    def written_1h(self, row: Price) -> str:
        return self.written(row) if row.cache_write_1h is None else show_usd(row.cache_write_1h)

    @admin.display(description=gettext_lazy("output"))
    def paid_for_output(self, row: Price) -> str:
        return show_usd(row.output)

    @admin.display(description=gettext_lazy("note"))
    def why(self, row: Price) -> str:
        return one_line(row.note, 60)

    def save_model(self, request: HttpRequest, obj: Price, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        transaction.on_commit(partial(_tell, request, obj), using=conf.DATABASE, robust=True)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        missing: Iterable[Missing] = missing_prices() if self.has_view_or_change_permission(request) else ()
        add = self.has_add_permission(request)
        lines = [(line, self._add_url(line) if add else "") for line in missing]
        return super().changelist_view(request, {"missing": lines, **(extra_context or {})})

    def _add_url(self, line: Missing) -> str:
        return url_of(self.admin_site, "agentturns_price_add", provider=line.provider, model=line.model)


def _tell(request: HttpRequest, price: Price) -> None:
    """What the saved price did to stored steps; saving applied it just before."""
    if price.applied is None:
        messages.warning(request, _("The price is stored; the workers apply it to stored steps at their next sweep."))
    elif price.applied.steps or price.applied.left:
        messages.info(request, _sentence(price.applied))


def _sentence(applied: Applied) -> str:
    steps = ngettext(
        "%(count)d step without a price has got this one", "%(count)d steps without a price have got one", applied.steps
    )
    turns = ngettext("%(count)d turn goes on", "%(count)d turns go on", applied.resumed)
    said = [steps % {"count": applied.steps}, turns % {"count": applied.resumed}]
    if applied.left:
        said.append(_("the workers do the rest at their next sweep"))
    return "; ".join(said) + "."
