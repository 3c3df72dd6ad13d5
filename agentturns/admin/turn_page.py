"""What a turn's page shows, read in a number of queries that does not depend on the turn's length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import PermissionDenied
from django.core.paginator import Page, Paginator
from django.db.models import Model, QuerySet
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from agentturns.admin.formatting import (
    NOTHING,
    Excerpt,
    badge,
    duration,
    excerpt,
    json_excerpt,
    step_cost,
    visible,
)
from agentturns.admin.ways_on import DECIDE
from agentturns.models import Notice, Step, ToolCall, Turn
from agentturns.models.audit import require_consent

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_PER_PAGE: Final = 50
CARDS: Final = 20  # open decisions shown at once
READABLE: Final = 20_000  # characters of a decision's arguments that are shown among others


@dataclass(frozen=True, slots=True)
class CallCard:
    """One tool call. ``doubted`` and ``asks`` say which decision is open on it; neither for most.

    ``may_decide`` is whether the reader may take it, and ``may_not`` why the project's own rule says no.
    """

    call: ToolCall
    url: str
    state: SafeString
    arguments: Excerpt
    output: Excerpt
    took: str
    asks: bool
    doubted: bool
    question: Excerpt | None = None
    may_decide: bool = False
    may_not: str = ""

    @property
    def raw(self) -> Excerpt | None:
        """What the model wrote, where that could not be read as arguments."""
        return (
            excerpt(visible(self.call.raw_arguments)) if self.call.raw_arguments and not self.call.arguments else None
        )


@dataclass(frozen=True, slots=True)
class StepCard:
    """One model call with the tool calls it asked for and what the model was told after them."""

    step: Step
    url: str
    state: SafeString
    cost: str
    used: str
    took: str
    text: Excerpt
    other_output: Excerpt | None
    calls: Sequence[CallCard] = ()
    notices: Sequence[Notice] = field(default=())


def call_card(call: ToolCall, url: str, *, limit: int | None) -> CallCard:
    """The card of one call; long texts are cut at ``limit`` characters, None shows them whole."""
    return CallCard(
        call=call,
        url=url,
        state=call_state(call),
        arguments=json_excerpt(call.arguments, limit),
        output=excerpt(call.output_text, limit),
        took=duration(call.started_at, call.completed_at),
        asks=call.awaits_decision and call.status != ToolCall.Status.IN_DOUBT,
        doubted=call.status == ToolCall.Status.IN_DOUBT,
        question=_question(call, limit) if call.is_question else None,
    )


def decision_card(call: ToolCall, url: str, user: Any, *, limit: int | None) -> CallCard:
    """The card of a call that waits for a person, with whether ``user`` may decide it."""
    card = call_card(call, url, limit=limit)
    if not (card.asks or card.doubted) or not user.has_perm(DECIDE):
        return card
    try:
        require_consent(user, call)
    except PermissionDenied as refusal:
        return replace(card, may_not=str(refusal))
    return replace(card, may_decide=True)


def _question(call: ToolCall, limit: int | None) -> Excerpt | None:
    asked = call.arguments.get("question") if isinstance(call.arguments, dict) else None
    return excerpt(visible(asked), limit) if isinstance(asked, str) and asked.strip() else None


def call_state(call: ToolCall) -> SafeString:
    """What became of a call, or what it waits for, in words."""
    if call.awaits_decision and call.status != ToolCall.Status.IN_DOUBT:
        return badge("asks", _("awaiting answer") if call.is_question else _("awaiting decision"))
    return badge(call.status, call.get_status_display())


def step_card(step: Step, url: str, *, limit: int | None, **parts: Any) -> StepCard:
    """The card of one step; long texts are cut at ``limit`` characters, None shows them whole."""
    text, others = _output(step.output)
    return StepCard(
        step=step,
        url=url,
        state=badge(step.status, step.get_status_display()),
        cost=step_cost(step.cost, step.presumed_cost, step.priced, step.status == Step.Status.COMPLETED),
        used=_used(step),
        took=duration(step.started_at, step.completed_at),
        text=excerpt(text, limit),
        other_output=json_excerpt(others, limit) if others else None,
        **parts,
    )


def _used(step: Step) -> str:
    if step.input_tokens is None and step.output_tokens is None:
        return ""
    figures = {"input": tokens(step.input_tokens), "output": tokens(step.output_tokens)}
    return _("%(input)s tokens in, %(output)s out") % figures


def _output(output: Any) -> tuple[str, list[Any]]:
    """A reply's text, and the blocks that are no text (reasoning and the like)."""
    blocks = output if isinstance(output, list) else [output]
    texts, others = [], []
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            texts.append(block["text"])
        else:
            others.append(block)
    return "\n".join(texts), others


def steps_page(turn: Turn, asked: str) -> Page:
    """One page of the turn's steps; the last one unless ``asked`` names another, as that is where it stands now."""
    pages = Paginator(Step.objects.filter(turn=turn).order_by("index").defer("wire"), STEPS_PER_PAGE)
    return pages.get_page(asked or pages.num_pages)


def step_cards(turn: Turn, page: Page, url_of: Callable[[type[Model], Any], str], *, limit: int) -> list[StepCard]:
    """The cards of one page of steps, with their calls and notices: three queries."""
    steps = list(page.object_list)
    calls: dict[int, list[CallCard]] = defaultdict(list)
    for call in _calls(turn).filter(step__in=[step.pk for step in steps]).order_by("step_id", "position"):
        calls[call.step_id].append(call_card(call, url_of(ToolCall, call.pk), limit=limit))
    notices: dict[int, list[Notice]] = defaultdict(list)
    for notice in Notice.objects.filter(turn=turn, after_step__in=[step.index for step in steps]).order_by("pk"):
        notices[notice.after_step].append(notice)
    return [
        step_card(
            step, url_of(Step, step.pk), limit=limit, calls=calls.get(step.pk, ()), notices=notices.get(step.index, ())
        )
        for step in steps
    ]


def open_decisions(turn: Turn, url_of: Callable[[type[Model], Any], str], user: Any) -> list[CallCard]:
    """The calls of this turn that wait for a person, in the order they were asked for."""
    waiting: Iterable[ToolCall] = _calls(turn).awaiting_decision()[:CARDS]
    return [decision_card(call, url_of(ToolCall, call.pk), user, limit=READABLE) for call in waiting]


def _calls(turn: Turn) -> Any:
    # The stored result is the output's source; what the model saw is what is shown.
    calls: QuerySet = ToolCall.objects.filter(turn=turn).defer("result")
    return calls


def tokens(count: int | None) -> str:
    """A number of tokens, or a dash where the provider did not say."""
    return NOTHING if count is None else f"{count:,}"
