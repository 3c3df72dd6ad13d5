"""A result as the model reads it, whether a tool returned it or a person gave it."""

from __future__ import annotations

import json
from typing import Any, Final

from agentturns.conf import conf

NO_OUTPUT: Final = "(no output)"


def shown_to_model(value: Any) -> str:
    """``value`` as the text the model is given: never empty, cut with a visible mark."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not text.strip():
        return NO_OUTPUT
    if len(text) <= conf.MAX_RESULT_CHARS:
        return text
    return f"{text[: conf.MAX_RESULT_CHARS]}\n[cut here: {conf.MAX_RESULT_CHARS:,} of {len(text):,} characters shown]"
