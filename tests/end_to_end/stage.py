"""A shop on this test's database, whose worker runs in processes of its own."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from agentturns import Agent, Turn, doorbell
from tests.end_to_end.shop.door import Door
from tests.processes import TurnWorker, running_turnworker
from tests.subprocesses import database_url

WAIT_SECONDS: Final = 30
RESTS: Final = ("parked", "completed", "failed", "canceled")


@dataclass
class Shop:
    """The shop. ``agentturns`` is the setting of that name, for workers that start from now on."""

    directory: Path
    clerks: dict[str, Agent]
    agentturns: dict[str, Any]
    door: Door = field(default_factory=Door)
    workers: list[TurnWorker] = field(default_factory=list)

    def turnworker(self, *arguments: str) -> AbstractContextManager[TurnWorker]:
        """A worker of this shop: one process that runs turns, unless ``arguments`` say otherwise."""
        without_keys = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        environment = {
            **without_keys,
            "DJANGO_SETTINGS_MODULE": "tests.end_to_end.settings",
            "DATABASE_URL": database_url(),
            "SHOP_AGENTTURNS": json.dumps(self.agentturns),
            "SHOP_EFFECTS": str(self._effects),
            "SHOP_DOOR": self.door.address,
            "PYTHONUNBUFFERED": "1",
        }
        number = len(list(self.directory.glob("turnworker-*.log"))) + 1
        log = self.directory / f"turnworker-{number}.log"
        return running_turnworker(log, environment, "--processes", "1", "--grace", "10", *arguments)

    def effects(self) -> list[str]:
        """What the tools did outside the database, oldest first."""
        return self._effects.read_text().split() if self._effects.exists() else []

    @property
    def _effects(self) -> Path:
        return self.directory / "effects.txt"


def until(what: str, condition: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
    """What ``condition``, asked of another process's rows, returns as soon as that is true."""
    ends_at = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < ends_at, f"not in {seconds} seconds: {what}"
        time.sleep(0.02)
    return found


def until_it_rests(turn: Turn) -> Turn:
    """The turn, once it is parked or over."""
    return until(f"turn {turn.pk} parked or over", lambda: Turn.objects.filter(pk=turn.pk, status__in=RESTS).first())


def ring_when_abandoned(turn: Turn) -> None:
    """Wake a worker for a turn as soon as its dead worker's lease has run out.

    The schedule does the same within a minute, for which no test waits.
    """
    until("the lease run out", lambda: Turn.objects.abandoned().filter(pk=turn.pk).exists())
    doorbell.ring(turn.pk)


def grows(conversations: list[list[Any]]) -> bool:
    """Whether each conversation, as JSON text, begins with the whole of the one before and says more.

    Markers for the vendor's cache, which slide along with the conversation, are left out.
    """
    texts = [json.dumps(_unmarked(conversation))[:-1] for conversation in conversations]
    return all(later.startswith(f"{earlier}, ") for earlier, later in pairwise(texts))


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [_unmarked(item) for item in value] if isinstance(value, list) else value
