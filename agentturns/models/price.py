"""Prices: what the operator knows of a model's price and the public list does not, or has otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.validators import MinValueValidator
from django.db import models, transaction
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from agentturns.conf import conf
from agentturns.models.rows import Row
from agentturns.money.fields import NanoUSDField
from agentturns.money.price_book import PriceBook, PriceRule, Rates

if TYPE_CHECKING:
    from agentturns.models.repricing import Applied

_NOT_BELOW_ZERO = (MinValueValidator(0),)
_RATES = ("input", "cached_input", "cache_write", "cache_write_1h", "output")


class Price(Row):
    """What the models of one provider cost from a day on, in USD per million tokens; it goes before the public list.

    ``provider`` is an alias of ``AGENTTURNS["PROVIDERS"]`` and ``model`` a name or a pattern of names; which of
    several prices counts is said in ``agentturns/money/price_book.py``. Empty rates: reading the cache and writing it
    for five minutes cost what input does, writing it for an hour what writing it for five minutes does.

    Saving a price gives one to the stored steps without any that it covers, see :meth:`apply`. Steps that have a price
    keep it, whatever becomes of this row; each says which it is in ``price_source``.
    """

    people_columns = ("provider", "model", "effective_from", *_RATES, "note", "applied_at")

    provider = models.CharField(
        _("provider"), max_length=60, help_text=_("The alias in AGENTTURNS['PROVIDERS'], such as openai.")
    )
    model = models.CharField(
        _("model"),
        max_length=200,
        help_text=_(
            "The model's name without its alias, or a pattern: * stands for any text, ? for one character. An exact "
            "name goes before a pattern, and a longer pattern before a shorter one."
        ),
    )
    effective_from = models.DateTimeField(
        _("effective from"),
        null=True,
        blank=True,
        help_text=_("Calls made from then on have this price; empty for all calls, earlier ones too."),
    )
    input = NanoUSDField(_("input"), validators=_NOT_BELOW_ZERO, help_text=_("USD per million tokens."))
    cached_input = NanoUSDField(
        _("input read from cache"),
        null=True,
        blank=True,
        validators=_NOT_BELOW_ZERO,
        help_text=_("Empty: as for input."),
    )
    cache_write = NanoUSDField(
        _("written to cache for 5 minutes"),
        null=True,
        blank=True,
        validators=_NOT_BELOW_ZERO,
        help_text=_("Empty: as for input."),
    )
    cache_write_1h = NanoUSDField(
        _("written to cache for 1 hour"),
        null=True,
        blank=True,
        validators=_NOT_BELOW_ZERO,
        help_text=_("Empty: as for 5 minutes."),
    )
    output = NanoUSDField(_("output"), validators=_NOT_BELOW_ZERO, help_text=_("USD per million tokens."))
    note = models.TextField(_("note"), blank=True, default="", help_text=_("Where the price comes from."))
    applied_at = models.DateTimeField(null=True, blank=True, editable=False)

    applied: Applied | None = None

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["provider", "model", "effective_from"],
                name="agentturns_price_per_moment",
                violation_error_message=_("There is a price of this provider and model from that moment on already."),
            ),
            models.UniqueConstraint(
                fields=["provider", "model"],
                condition=Q(effective_from__isnull=True),
                name="agentturns_price_of_all_times",
                violation_error_message=_("There is a price of this provider and model without a date already."),
            ),
            *(
                models.CheckConstraint(condition=Q(**{f"{rate}__gte": 0}), name=f"agentturns_price_{rate}")
                for rate in _RATES
            ),
        )

    def __str__(self) -> str:
        return f"price {self.pk}: {self.provider}/{self.model}"

    def save(self, **options: Any) -> None:
        """Store the price and, once that is committed, :meth:`apply` it."""
        self.provider, self.model = self.provider.strip(), self.model.strip()
        self.applied_at = None
        if options.get("update_fields") is not None:
            options["update_fields"] = {*options["update_fields"], "applied_at"}
        super().save(**options)
        transaction.on_commit(self.apply, using=conf.DATABASE, robust=True)

    def apply(self) -> Applied:
        """Price the stored steps without a price that this one covers, and resume the turns that waited for that.

        Saving does it; the sweep goes on with what one call leaves, and does it for prices made in bulk.
        """
        from agentturns.models.repricing import reprice_covered

        self.applied = reprice_covered(self)
        return self.applied

    def rule(self) -> PriceRule:
        """The price as a rule of the price book."""
        rates = Rates(**{rate: getattr(self, rate) for rate in _RATES})
        return PriceRule(self.pk, self.provider, self.model, rates, self.effective_from)


def read_book() -> PriceBook:
    """The operator's prices as they stand now: one query."""
    return PriceBook.of(price.rule() for price in Price.objects.defer("note"))
