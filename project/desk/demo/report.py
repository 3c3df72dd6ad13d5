"""What the demo prints."""

from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Final

from project.desk.demo.evidence import Evidence
from project.desk.demo.failure import DemoFailed

WIDTH: Final = 110
CELL: Final = 24  # the widest any column but the last may be


class Voice:
    """Prints to ``stream`` at once, and falls silent when nobody is there to read it any more."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def say(self, text: str = "") -> None:
        """Print one or more lines."""
        try:
            self._stream.write(f"{text}\n")
            self._stream.flush()
        except OSError:
            # What is left in the buffer would fail once more when Python ends, and change its exit code.
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())

    def complain(self, failure: DemoFailed) -> None:
        """Print what went wrong, and the end of the log that may tell why."""
        self.say(f"The demo failed. {failure}")
        if failure.log:
            self.say("The last lines of the log:")
            self.say(textwrap.indent(failure.log, "    "))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side, the first row as heads; long cells are broken, the last column fills the page."""
    widths = [min(CELL, max(len(row[column]) for row in rows)) for column in range(len(rows[0]) - 1)]
    widths.append(WIDTH - sum(widths) - 2 * len(widths))
    lines: list[str] = []
    for row in [*rows[:1], ["-" * width for width in widths], *rows[1:]]:
        cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            lines.append("  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip())
    return "\n".join(lines)


def resume_table(before: Evidence, after: Evidence) -> str:
    """One turn before and after the raise, and what each line means."""
    made, more = before.calls_made(), after.calls_made() - before.calls_made()
    return table(
        [
            ("", "parked", "finished", "what it means"),
            (
                "status",
                before.status,
                after.status,
                "The cost limit stopped the turn between two steps; the raise in the admin set it going again.",
            ),
            (
                "steps",
                str(len(before.model_calls)),
                str(len(after.model_calls)),
                "Each is one row: a reply of the model and what came of it.",
            ),
            (
                "model calls",
                str(made),
                str(after.calls_made()),
                f"As many as steps: the first {made} were not made again after the raise, {more} were added.",
            ),
            (
                "tool effects",
                _effects(before),
                _effects(after),
                "Nothing happened twice: one row per refund, one file per e-mail.",
            ),
            ("spent", before.spent, after.spent, "The step that crosses the limit is finished and paid for once."),
            ("limit", before.limit, after.limit, "The new limit is for this turn alone; the agent keeps its own."),
        ]
    )


def _effects(evidence: Evidence) -> str:
    counts = (
        (evidence.called("find_order"), "look-up"),
        (evidence.refunds, "refund"),
        (evidence.emails, "e-mail"),
    )
    return ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts if count) or "none"
