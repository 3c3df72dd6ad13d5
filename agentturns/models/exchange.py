"""A turn's own messages as people read them: what was asked, said, run and told, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentturns.models.turn import Turn


def exchange(turn: Turn) -> list[dict[str, Any]]:
    """The turn's own messages, oldest first.

    ``{"role": "user", "content"}`` for the input and messages that came in while it ran, ``{"role": "assistant",
    "content", "step"}`` for replies, ``{"role": "tool", "name", "arguments", "content", "status", "step"}`` for calls,
    ``{"role": "notice", "content"}`` for what the model was told about its budget.
    """
    from agentturns.models.message import Message
    from agentturns.models.notice import Notice
    from agentturns.models.step import Step
    from agentturns.models.tool_call import ToolCall

    told: list[dict[str, Any]] = [{"role": "user", "content": turn.input}]
    notices = list(Notice.objects.filter(turn=turn.pk).order_by("pk"))
    messages = list(Message.objects.filter(turn=turn.pk, kind=Message.Kind.STEER).order_by("pk"))
    calls = list(ToolCall.objects.filter(turn=turn.pk).order_by("step", "position"))

    def say(after: int | None) -> None:
        told.extend({"role": "notice", "content": notice.text} for notice in notices if notice.after_step == after)
        told.extend({"role": "user", "content": message.text} for message in messages if message.after_step == after)

    say(0)
    for step in Step.objects.filter(turn=turn.pk, status=Step.Status.COMPLETED).order_by("index"):
        text = "".join(str(block.get("text", "")) for block in step.output if block.get("type") == "text")
        told.append({"role": "assistant", "content": text, "step": step.index})
        told.extend(
            {
                "role": "tool",
                "name": call.name,
                "arguments": call.arguments,
                "content": call.output_text,
                "status": call.status,
                "step": step.index,
            }
            for call in calls
            if call.step_id == step.pk
        )
        say(step.index)
    say(None)
    return told
