"""How figures, states and other people's text look to an operator. Everything returned is safe to put on a page."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from agentturns.usd import show_usd

NOTHING: Final = "–"
EXCERPT: Final = 4_000  # characters of a long text shown where it is one of many


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The head of a text that may be very long. ``length`` is that of the whole text, in characters."""

    text: str
    length: int

    @property
    def shown(self) -> int:
        """How many characters are shown."""
        return len(self.text)

    @property
    def cut(self) -> bool:
        """Whether the text goes on beyond what is shown."""
        return self.length > len(self.text)


def excerpt(text: str, limit: int | None = EXCERPT) -> Excerpt:
    """The first ``limit`` characters of ``text``; None shows all of it."""
    return Excerpt(text if limit is None else text[:limit], len(text))


def json_excerpt(value: Any, limit: int | None = EXCERPT) -> Excerpt:
    """A JSON value as people read it, with characters that would hide or turn text around written as escapes."""
    return excerpt(visible(json.dumps(value, ensure_ascii=False, indent=2)), limit)


def visible(text: str) -> str:
    r"""``text`` with direction marks, zero-width and control characters written as ``\u202e``.

    A person who approves a call must read what will run, so nothing in it may be invisible.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if _hides(char) else char for char in text)


def _hides(char: str) -> bool:
    return char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) != 0x7F else r"\u007f"


def one_line(text: str, length: int) -> str:
    """The start of ``text`` on one line, at most ``length`` characters."""
    return Truncator(" ".join(text[: length * 4].split())).chars(length)


def badge(kind: str, words: Any) -> SafeString:
    """A state in words, coloured by ``kind`` (a stored status)."""
    return format_html('<span class="agentturns-badge agentturns-badge--{}">{}</span>', kind, words)


def progress(spent: Decimal | float, limit: Decimal | float | None, label: str) -> SafeString:
    """A bar of spent against limit, nothing without a limit; ``label`` is read aloud."""
    if limit is None:
        return SafeString()
    over = spent > limit
    most = limit or 1  # a cap of 0 is used up from the start
    value = most if over or not limit else spent
    return format_html(
        '<progress class="agentturns-progress{}" max="{}" value="{}" aria-label="{}"></progress>',
        " agentturns-progress--over" if over or spent == limit else "",
        _plain(most),
        _plain(value),
        label,
    )


def _plain(number: Decimal | float) -> str:
    """A number as HTML writes it, whatever the language of the page."""
    return format(Decimal(str(number)), "f")


def step_cost(cost: Decimal | None, presumed: Decimal, priced: bool, completed: bool) -> str:
    """What a model call cost; "unpriced" where no price is known, never $0.00 for that."""
    parts = []
    if cost is not None:
        parts.append(show_usd(cost))
    elif completed and not priced:
        parts.append(_("unpriced"))
    if presumed:
        parts.append(_("%(amount)s presumed") % {"amount": show_usd(presumed)})
    return " + ".join(parts) or NOTHING


def with_unpriced(amount: str, spent: Decimal, unpriced_steps: int) -> str:
    """Spent money as people read it, saying how many steps are missing from it for want of a price."""
    if not unpriced_steps:
        return amount
    if not spent:
        return _("unpriced")
    steps = ngettext("%(count)d unpriced step", "%(count)d unpriced steps", unpriced_steps) % {"count": unpriced_steps}
    return f"{amount} + {steps}"


def moment(at: datetime | None) -> SafeString:
    """How long ago ``at`` was, with the full date for who points at it."""
    return _time(at, _("%(time)s ago") % {"time": timesince(at, depth=1)}) if at else SafeString(NOTHING)


def age(at: datetime | None) -> SafeString:
    """The time since ``at``, in its largest unit, with the full date for who points at it."""
    return _time(at, timesince(at, depth=1)) if at else SafeString(NOTHING)


def _time(at: datetime, words: str) -> SafeString:
    local = timezone.localtime(at) if timezone.is_aware(at) else at
    full = formats.date_format(local, "DATETIME_FORMAT")
    return format_html('<time datetime="{}" title="{}">{}</time>', local.isoformat(), full, words)


def duration(start: datetime | None, end: datetime | None) -> str:
    """The time between two moments: ``0.4 s``, ``3 min 20 s``; nothing while one is missing."""
    return seconds((end - start).total_seconds()) if start and end else ""


def seconds(amount: float) -> str:
    """Seconds as people read them: ``0.4 s``, ``3 min 20 s``, ``2 h 5 min``."""
    amount = max(0.0, amount)
    if amount < 59.95:
        return f"{amount:.1f} s"
    minutes, rest = divmod(round(amount), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"
