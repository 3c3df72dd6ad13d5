"""Offers the text of a reply while it is being written, for a page that shows it. It is stored nowhere."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agentturns.conf import conf, load
from agentturns.exceptions import ConfigurationError
from agentturns.models.turn import Turn

logger = logging.getLogger("agentturns")


def listener(turn: Turn, step_index: int) -> Callable[[str], None] | None:
    """What hears each piece of text of one model call; None where the project listens to none.

    A listener that fails is logged and hears no more of this call: nothing that is only shown stops a turn.
    """
    path = conf.ON_TEXT
    if not path:
        return None
    try:
        hear = load(path, "ON_TEXT")
    except ConfigurationError as error:
        logger.error("turn=%s on_text not found: %s", turn.pk, error)
        return None
    deaf = False

    def offer(text: str) -> None:
        nonlocal deaf
        if deaf:
            return
        try:
            hear(turn, step_index, text)
        except Exception:
            deaf = True
            logger.exception("turn=%s step=%s on_text failed", turn.pk, step_index)

    return offer
