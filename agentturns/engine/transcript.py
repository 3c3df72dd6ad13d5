"""The conversation as the model is sent it, rebuilt from rows alone: same rows, same messages."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from agentturns.engine.candidates import flavour_of
from agentturns.models.message import Message as SentMessage
from agentturns.models.notice import Notice
from agentturns.models.queueing import wording
from agentturns.models.states import CallStatus, Status, StepStatus
from agentturns.models.step import Step
from agentturns.models.tool_call import ToolCall
from agentturns.models.turn import Turn
from agentturns.providers.base import AssistantMessage, Message, ToolRequest, ToolResult, ToolResults, UserMessage

ENDINGS = {
    Status.CANCELED: "(The request above was canceled before it was answered.)",
    Status.FAILED: "(The request above ended without an answer.)",
}


class Transcript:
    """The messages of one turn so far, earlier turns of its session first.

    ``baseline`` is the number of messages before this turn's own.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._ids: set[str] = set()
        self.messages: list[Message] = []
        turns = [*_earlier(turn), turn]
        steps, calls, said = _rows([past.pk for past in turns])
        self.baseline = 0
        for past in turns:
            if past is turn:
                self.baseline = len(self.messages)
            self.messages.append(UserMessage(past.message or past.input))
            self.messages.extend(UserMessage(text) for text in said[past.pk, 0])
            own = steps[past.pk]
            for step in own:
                # A reply that ended the turn but was cut is asked for again, as if it had never been seen.
                if step.terminal and (past is turn or step is not own[-1]):
                    self.messages.extend(UserMessage(text) for text in said[past.pk, step.index])
                    continue
                self.add(step, calls[step.pk], said[past.pk, step.index], turn=past)
            if past is not turn and past.status in ENDINGS:
                self.messages.append(UserMessage(ENDINGS[Status(past.status)]))

    def add(self, step: Step, calls: Sequence[ToolCall], notices: Sequence[str] = (), *, turn: Turn) -> None:
        """Append a completed step of ``turn``, and the results of its calls, all settled, in their order."""
        requests = tuple(ToolRequest(self._unique(call, step), call.name, call.raw_arguments) for call in calls)
        model = f"{step.provider}:{step.requested_model}"
        self.messages.append(AssistantMessage(step.wire, flavour_of(turn, step), text_of(step.output), requests, model))
        if requests:
            results = tuple(
                ToolResult(request.call_id, request.name, call.output_text, call.status != CallStatus.COMPLETED)
                for request, call in zip(requests, calls, strict=True)
            )
            self.messages.append(ToolResults(results, "\n\n".join(notices)))
        else:
            self.messages.extend(UserMessage(text) for text in notices)

    def _unique(self, call: ToolCall, step: Step) -> str:
        """The call's id on the wire: the provider's own where it gave one not used before."""
        call_id = call.call_id
        if not call_id or call_id in self._ids:
            call_id = f"call_{step.turn_id}_{step.index}_{call.position}"
        self._ids.add(call_id)
        return call_id


def text_of(output: Iterable[dict[str, object]]) -> str:
    """The plain text of a step's output blocks."""
    return "".join(str(block.get("text", "")) for block in output if block.get("type") == "text")


def snapshot_tools(definitions: str) -> list[dict[str, object]]:
    """The tool definitions of a turn's snapshot."""
    return json.loads(definitions) if definitions else []


def _earlier(turn: Turn) -> list[Turn]:
    if turn.index == 1:
        return []
    return list(
        Turn.objects.filter(session=turn.session_id, index__lt=turn.index)
        .only("pk", "index", "input", "message", "status", "model", "wire_flavour", "request_options")
        .order_by("index")
    )


def _rows(
    turn_ids: list[int],
) -> tuple[dict[int, list[Step]], dict[int, list[ToolCall]], dict[tuple[int, int], list[str]]]:
    steps: dict[int, list[Step]] = defaultdict(list)
    calls: dict[int, list[ToolCall]] = defaultdict(list)
    said: dict[tuple[int, int], list[str]] = defaultdict(list)
    for step in (
        Step.objects.filter(turn__in=turn_ids, status=StepStatus.COMPLETED)
        .only("pk", "turn_id", "index", "provider", "requested_model", "wire", "output", "terminal")
        .order_by("turn", "index")
    ):
        steps[step.turn_id].append(step)
    for call in (
        ToolCall.objects.filter(turn__in=turn_ids)
        .only("pk", "step_id", "position", "call_id", "name", "raw_arguments", "output_text", "status")
        .order_by("step", "position")
    ):
        calls[call.step_id].append(call)
    for notice in Notice.objects.filter(turn__in=turn_ids).order_by("pk"):
        said[notice.turn_id, notice.after_step].append(notice.text)
    # Merged messages stand in their turn's input already.
    steering = SentMessage.objects.filter(turn__in=turn_ids, kind=SentMessage.Kind.STEER, after_step__isnull=False)
    for turn_id, after_step, text in steering.order_by("pk").values_list("turn", "after_step", "text"):
        said[turn_id, after_step].append(wording(text))
    return steps, calls, said
