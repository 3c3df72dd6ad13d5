"""What happened so far, read from the turn's rows, the refunds and the e-mails: what the demo's table shows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from agentturns import Step, ToolCall, Turn
from agentturns.definitions.limits import CAPS
from project.desk.models import Refund


@dataclass(frozen=True, slots=True)
class Ran:
    """One model call or tool call as its row tells it. ``times`` is how often it was begun, as far as rows know."""

    id: int
    what: str
    status: str
    times: int
    ended_at: datetime | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """One look at a turn. ``spent`` and ``limit`` are texts such as ``$0.06``."""

    status: str
    model_calls: tuple[Ran, ...]
    tool_calls: tuple[Ran, ...]
    refunds: int
    emails: int
    spent: str
    limit: str

    @classmethod
    def of(cls, turn: Turn, outbox: Path) -> Self:
        """What the rows of ``turn`` and the e-mails of its tool calls say now."""
        calls = list(ToolCall.objects.filter(turn=turn).order_by("step__index", "position"))
        ids = {call.pk for call in calls}
        limit = turn.limit("max_cost")
        return cls(
            status=f"{turn.status} ({turn.park_reason})" if turn.park_reason else turn.status,
            model_calls=tuple(
                Ran(step.pk, f"step {step.index}", step.status, step.attempts, step.completed_at, step.wire)
                for step in Step.objects.filter(turn=turn).order_by("index")
            ),
            tool_calls=tuple(
                Ran(call.pk, call.name, call.status, 1, call.completed_at, call.output_text) for call in calls
            ),
            refunds=Refund.objects.filter(tool_call__in=ids).count(),
            emails=sum(call in ids for call in emails_by_call(outbox)),
            spent=CAPS["max_cost"].show(turn.spent("max_cost")),
            limit="none" if limit is None else CAPS["max_cost"].show(limit),
        )

    def calls_made(self) -> int:
        """How often the model was asked."""
        return sum(call.times for call in self.model_calls)

    def called(self, tool: str) -> int:
        """How many calls of ``tool`` there are."""
        return sum(call.what == tool for call in self.tool_calls)


def emails_by_call(outbox: Path) -> list[int]:
    """The tool call that sent each e-mail in the folder."""
    return [
        int(line.partition(":")[2])
        for file in sorted(outbox.glob("*.log"))
        for line in file.read_text(errors="replace").splitlines()
        if line.startswith("X-Tool-Call:")
    ]


def what_went_wrong(before: Evidence, after: Evidence) -> str:
    """Why the two looks, before and after a raise, do not show a clean resume, as a sentence; "" when they do."""
    if not after.status.startswith("completed"):
        return f"After the raise the turn should have completed, but it is {after.status}."
    for kind, earlier, later in (
        ("model call", before.model_calls, after.model_calls),
        ("tool call", before.tool_calls, after.tool_calls),
    ):
        if later[: len(earlier)] != earlier:
            return f"A {kind} from before the raise was made again or changed: {_difference(earlier, later)}."
        if len(later) == len(earlier):
            return f"No {kind} was made after the raise, so nothing was resumed."
    if after.calls_made() != len(after.model_calls):
        return f"The model was asked {after.calls_made()} times for {len(after.model_calls)} steps."
    for tool, effects, name in (
        ("issue_refund", after.refunds, "refunds"),
        ("notify_customer", after.emails, "e-mails"),
    ):
        if effects != 1 or after.called(tool) != 1:
            return f"There should be one call of {tool} and one effect of it, but there are {effects} {name}."
    return ""


def _difference(earlier: tuple[Ran, ...], later: tuple[Ran, ...]) -> Any:
    changed = [one.what for one, other in zip(earlier, later, strict=False) if one != other]
    return ", ".join(changed) or "some are gone"
