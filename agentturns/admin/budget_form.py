"""The form for new caps: amounts as people write them in their language, and the reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.formats import get_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agentturns.admin.budget_panel import CAP_WORDS
from agentturns.definitions.limits import CAPS, Cap
from agentturns.money.budget import UNPRICED

REASON_LENGTH = 1_000
_NUMBER = re.compile(r"(?P<whole>[0-9]+)(?:(?P<mark>[.,٫])(?P<digits>[0-9]+))?")


def parse_number(text: str) -> Decimal:
    """A number as written in the active language. Raises ``ValidationError`` for anything that can be read two ways.

    A point is taken as the decimal mark in every language, except where it could separate thousands (``1.000`` in
    German); a thousands separator is refused rather than guessed at.
    """
    mark = str(get_format("DECIMAL_SEPARATOR"))
    found = _NUMBER.fullmatch(text)
    if found and found["mark"] in (None, mark):
        return Decimal(".".join(part for part in (found["whole"], found["digits"]) if part))
    if found and found["mark"] == "." and not _may_be_thousands(found["whole"], found["digits"]):
        return Decimal(f"{found['whole']}.{found['digits']}")
    raise ValidationError(
        _(
            "“%(text)s” is not a number that can be read one way only; write digits with “%(mark)s” as the decimal "
            "mark and without a thousands separator, such as 1250%(mark)s50."
        )
        % {"text": text, "mark": mark},
        code="invalid",
    )


def _may_be_thousands(whole: str, digits: str) -> bool:
    return len(digits) == 3 and len(whole) <= 3 and not whole.startswith("0")


class CapField(forms.CharField):
    """One cap's new value: ``Decimal`` dollars, ``int`` tokens and counts, seconds; None where left empty."""

    def __init__(self, cap: Cap, **options: Any) -> None:
        self.cap = cap
        widget = forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off", "size": 14})
        super().__init__(required=False, max_length=40, label=cap_label(cap), widget=widget, **options)

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        number = parse_number(text.removeprefix("$").strip() if self.cap.unit == "USD" else text)
        whole = number == number.to_integral_value()
        try:
            if self.cap.unit == "USD":
                return self.cap.parse(number)
            if whole:
                return self.cap.parse(int(number))
            if self.cap.unit == "seconds":
                return self.cap.parse(float(number))
        except ValueError as error:
            raise ValidationError(str(error), code="invalid") from None
        raise ValidationError(
            _("%(text)s is not a whole number of %(unit)s.") % {"text": text, "unit": self.cap.unit}, code="invalid"
        )


def cap_label(cap: Cap) -> str:
    """The cap in words, with its unit where the words do not say it."""
    return f"{CAP_WORDS[cap.name]} ({cap.unit})" if cap.unit in ("USD", "seconds") else str(CAP_WORDS[cap.name])


class BudgetForm(forms.Form):
    """New absolute values for some of ``caps``; a field left empty leaves its cap as it is. The reason is required."""

    error_css_class = "errors"
    required_css_class = "required"

    def __init__(self, *args: Any, caps: Sequence[str], offer_unpriced: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self.caps = list(caps)
        for name in self.caps:
            self.fields[name] = CapField(CAPS[name])
        if offer_unpriced:
            self.fields[UNPRICED] = forms.BooleanField(
                required=False, label=gettext_lazy("Allow steps without a known price")
            )
        self.fields["reason"] = forms.CharField(
            label=gettext_lazy("Reason"),
            max_length=REASON_LENGTH,
            widget=forms.Textarea(attrs={"rows": 2, "cols": 60}),
            error_messages={"required": gettext_lazy("Write a reason; it is kept with the change.")},
            help_text=gettext_lazy("Kept with the change, for whoever reads this turn later."),
        )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if not self.errors and not self.changes():
            raise ValidationError(_("Nothing is changed: write a new value for at least one limit."), code="empty")
        return cleaned

    def changes(self) -> dict[str, Any]:
        """What was asked for, as the verbs take it: ``{"max_cost": Decimal("0.50"), "unpriced": "allow"}``."""
        asked = {cap: self.cleaned_data.get(cap) for cap in self.caps}
        changes = {cap: value for cap, value in asked.items() if value is not None}
        if self.cleaned_data.get(UNPRICED):
            changes[UNPRICED] = "allow"
        return changes

    def show_refusal(self, cap: str, sentence: str) -> None:
        """Show why the verb refused, at the field of ``cap`` where there is one."""
        self.add_error(cap if cap in self.fields else None, sentence)
