"""What a turn waits for, in one sentence with its figure and the way on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils import timezone

from agentturns.definitions.limits import CAPS
from agentturns.models.states import CallStatus, ParkReason, Status
from agentturns.money.budget import limit_for, shown_spent, spent_on

if TYPE_CHECKING:
    from agentturns.models.turn import Turn


def waiting_for(turn: Turn) -> str:
    """The sentence; "" for a turn that runs or is over and can only be read."""
    if turn.status == Status.PARKED:
        return _parked(turn)
    if turn.status == Status.QUEUED:
        return _queued(turn)
    if turn.status == Status.FAILED and _failing_cap(turn):
        return f"Failed: {_cap_figures(turn, _failing_cap(turn))}. Raise it to go on where it stopped."
    return ""


def _failing_cap(turn: Turn) -> str:
    cap = "max_tool_calls" if turn.error_code == "tool_limit" else turn.error_code
    return cap if cap in CAPS else ""


def _cap_figures(turn: Turn, cap: str) -> str:
    spent, limit = shown_spent(turn, cap, spent_on(turn, cap)), limit_for(turn, cap)
    return f"spent {spent} of {cap} {CAPS[cap].show(limit)}" if limit is not None else f"spent {spent}, {cap} is off"


def _parked(turn: Turn) -> str:
    if turn.park_reason in CAPS:
        return _parked_on_cap(turn, turn.park_reason)
    match turn.park_reason:
        case ParkReason.UNPRICED:
            limit = limit_for(turn, "max_cost")
            under = f" under max_cost {CAPS['max_cost'].show(limit)}" if limit is not None else ""
            steps = "1 step has" if turn.unpriced_steps == 1 else f"{turn.unpriced_steps} steps have"
            return (
                f"{steps} no known price for {turn.model}{under}: add a price, or raise with unpriced='allow' to go "
                "on without one."
            )
        case ParkReason.APPROVAL | ParkReason.QUESTION | ParkReason.IN_DOUBT:
            return _open_decisions(turn)
        case ParkReason.APPROVAL_EXPIRED:
            return "Nobody decided a tool call in time, so it counts as declined; retry to go on with that."
        case ParkReason.CRASH_LOOP:
            return f"Its worker died {turn.crashes} times without progress; look at the worker's log, then retry."
        case ParkReason.AGENT_MISSING:
            return f"No agent is named {turn.agent!r} in the worker's code; declare it, restart the worker, then retry."
        case ParkReason.TOOL_LOOP:
            return turn.error_message or "The model repeats the same tool call; retry to let it go on, or cancel."
    said = turn.error_message or "The model provider failed."
    # A message that names the way out itself needs no second one.
    return said if "retry" in said.lower() else f"{said} Retry once that is mended."


def _parked_on_cap(turn: Turn, cap: str) -> str:
    sentence = _cap_figures(turn, cap)
    if cap == "max_tool_calls" and turn.tool_calls_waiting:
        waiting = turn.tool_calls_waiting
        sentence += f", {waiting} call{'s' if waiting != 1 else ''} waiting"
    if turn.error_message:
        sentence += f" ({turn.error_message})"
    return f"{sentence[0].upper()}{sentence[1:]}; raise {cap} to go on."


def _open_decisions(turn: Turn) -> str:
    from agentturns.models.tool_call import ToolCall

    calls = list(ToolCall.objects.filter(turn=turn).awaiting_decision())
    if not calls:
        return "Its decisions are taken; it goes on as soon as a worker takes it up."
    doubted = [call.name for call in calls if call.status == CallStatus.IN_DOUBT]
    questions = [call for call in calls if call.is_question]
    asked = [call for call in calls if call.status != CallStatus.IN_DOUBT and not call.is_question]
    parts = []
    if doubted:
        parts.append(
            f"a crash left it unknown whether {_names(doubted)} happened: look, then rerun it or confirm its result"
        )
    if asked:
        noted = f" ({asked[0].note})" if len(asked) == 1 and asked[0].note else ""
        parts.append(f"a person must approve or decline {_names([call.name for call in asked])}{noted}")
    if len(questions) == 1:
        parts.append(f"a person must answer: {str(questions[0].arguments.get('question', ''))[:200]}")
    elif questions:
        parts.append(f"a person must answer {len(questions)} questions")
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}{'' if sentence[-1] in '.?!' else '.'}"


def _names(names: list[str]) -> str:
    if len(names) == 1:
        return f"the call of {names[0]}"
    return f"{len(names)} calls ({', '.join(sorted(set(names)))})"


def _queued(turn: Turn) -> str:
    if turn.run_after is not None and turn.run_after > timezone.now():
        seconds = max(1, round((turn.run_after - timezone.now()).total_seconds()))
        why = f" {turn.error_message}" if turn.error_message else ""
        return f"Tries again in {CAPS['timeout'].show(seconds)} (failure {turn.provider_failures}).{why}"
    from agentturns.models.turn import Turn as Turns

    earlier = (
        Turns.objects.filter(session=turn.session_id, index__lt=turn.index, status__in=Status.unfinished())
        .order_by("index")
        .first()
    )
    if earlier is not None:
        return f"Waits for turn {earlier.pk} of the same session, which is {earlier.status}."
    return "Waits for a worker."
