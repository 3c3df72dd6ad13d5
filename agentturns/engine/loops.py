"""Whether a turn goes in circles: the same tool with the same arguments, again and again."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q

from agentturns.models.tool_call import ToolCall


def repeats_of(call: ToolCall, most: int) -> int:
    """How many calls in a row, up to ``call``, are the same as it; counted no further than just above ``most``.

    A call that a person let run although it repeats begins the count anew.
    """
    earlier = (
        ToolCall.objects.filter(turn=call.turn_id)
        .filter(Q(step__lt=call.step_id) | Q(step=call.step_id, position__lt=call.position))
        .order_by("-step", "-position")
        .values_list("name", "arguments_hash", "repeat_allowed")[:most]
    )
    count = 1
    if call.repeat_allowed:
        return count
    for name, arguments, let_through in earlier:
        if (name, arguments) != (call.name, call.arguments_hash):
            break
        count += 1
        if let_through:
            break
    return count


def before_loop(calls: Sequence[ToolCall], most: int) -> list[ToolCall]:
    """The calls up to the first that would repeat more than ``most`` times in a row."""
    going: list[ToolCall] = []
    for call in calls:
        if repeats_of(call, most) > most:
            break
        going.append(call)
    return going
