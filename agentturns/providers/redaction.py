"""Keys taken out of what vendors say, before it reaches a row, a log or a page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from agentturns.cleaning import clean_text

LONGEST: Final = 500
_HIDDEN: Final = "[key]"
# Vendors repeat a wrong key, whole or with stars in the middle. A token of another make is known by its digits.
_KEY_LIKE: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|pplx|nvapi)[-_][A-Za-z0-9*.…_-]{8,}|\bAIza[\w-]{20,}|(?<=Bearer )(?=\S*[\d*])\S{8,}"
)
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+@")


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` on one line, cut to 500 characters, without ``secrets``, what looks like a key, and URL passwords."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    text = _CREDENTIALS.sub("", _KEY_LIKE.sub(_HIDDEN, text))
    text = clean_text(" ".join(text.split()))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
