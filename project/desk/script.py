"""The model that the desk has where no key of a vendor is at hand: it works a request off, tool by tool.

It keeps nothing between calls and reads all it must know from the conversation, so that whichever process takes a
turn up goes on at the right place, as with a real model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentturns.providers.base import Fault, ProviderError
from agentturns.providers.scripted import Reply, ScriptedRequest, reply
from project.desk.models import ORDER_NUMBER, pounds

WANTS_REFUND: Final = re.compile(r"refund|money back", re.I)
WANTS_NOTE: Final = re.compile(r"e-?mail|let \w+ know|tell (him|her|them|the customer)", re.I)
AMOUNT: Final = re.compile(r"£\s?(\d+)(?:\.(\d\d))?")
THINKING_SECONDS: Final = 0.2  # without it a turn is over before anybody sees it run


@dataclass(frozen=True, slots=True)
class Request:
    """What the customer asks for, and what was done for it so far. ``results`` are tool messages by tool name."""

    text: str
    order_number: str
    results: dict[str, dict[str, Any]]

    @property
    def failure(self) -> str:
        """What the first tool that could not do its work said, "" where none failed."""
        return next((result["content"] for result in self.results.values() if result["is_error"]), "")

    @property
    def order(self) -> dict[str, Any]:
        """The order as find_order told of it."""
        return json.loads(self.results["find_order"]["content"])

    @property
    def amount_pence(self) -> int:
        """What to refund: the amount the customer names, else all that is left."""
        named = AMOUNT.search(self.text)
        if named:
            return int(named[1]) * 100 + int(named[2] or 0)
        return int(self.order["paid_pence"]) - int(self.order["refunded_pence"])


def read(messages: Sequence[dict[str, Any]]) -> Request:
    """The last request of the conversation."""
    asked = max(place for place, message in enumerate(messages) if _is_request(messages, place))
    heard = " ".join(message["content"] for message in messages[: asked + 1] if message["role"] == "user")
    numbers = ORDER_NUMBER.findall(heard)
    results = {message["name"]: message for message in messages[asked:] if message["role"] == "tool"}
    return Request(messages[asked]["content"], numbers[-1] if numbers else "", results)


def _is_request(messages: Sequence[dict[str, Any]], place: int) -> bool:
    # What stands on the user's side right after results are notices of the engine.
    return messages[place]["role"] == "user" and not (place and messages[place - 1]["role"] == "tool")


def answer(asked: ScriptedRequest) -> Reply:
    """The reply to one request: the next tool that the work needs, or the answer."""
    if asked.state.turn_context.get("rehearse") == "spend_limit" and not asked.state.resumed:
        raise ProviderError(
            "The desk's account with its model provider is used up (rehearsed; a retry finds it filled).",
            fault=Fault.SPEND_LIMIT,
            code="insufficient_quota",
        )
    request = read(asked.messages)
    tokens = 400 + sum(len(json.dumps(message)) for message in asked.messages) // 4
    if not request.order_number:
        return _said("Which order is it about? The number is on the receipt, such as A-1001.", tokens, "0.01")
    if request.failure:
        return _said(f"I could not finish this. {request.failure}", tokens, "0.01")
    return _next(request, tokens)


def _next(request: Request, tokens: int) -> Reply:
    number, done = request.order_number, request.results
    refunds = bool(WANTS_REFUND.search(request.text))
    if "find_order" not in done:
        return _asks(f"I look order {number} up first.", "find_order", {"order_number": number}, tokens, "0.02")
    if refunds and "issue_refund" not in done:
        arguments = {"order_number": number, "amount_pence": request.amount_pence, "reason": request.text[:200]}
        return _asks("The order is there, so I refund it.", "issue_refund", arguments, tokens, "0.04")
    if (refunds or WANTS_NOTE.search(request.text)) and "notify_customer" not in done:
        told = f"We refunded {_refunded(request)} on order {number}." if refunds else f"Order {number} is on its way."
        arguments = {"order_number": number, "subject": f"Your order {number}", "message": told}
        return _asks("Now the customer hears of it.", "notify_customer", arguments, tokens, "0.02")
    return _said(_ending(request, refunds), tokens, "0.01")


def _ending(request: Request, refunds: bool) -> str:
    order = request.order
    about = f"Order {request.order_number}, {order['item']}, paid {pounds(int(order['paid_pence']))}"
    if refunds:
        return f"{about}: {_refunded(request)} is refunded and {order['customer']} has an e-mail about it."
    if "notify_customer" in request.results:
        return f"{about}: {order['customer']} has an e-mail that it is on its way."
    return f"{about}, was placed on {order['placed_on']} and is on its way."


def _refunded(request: Request) -> str:
    # A person may have answered the call in the tool's place, with text.
    try:
        return pounds(int(json.loads(request.results["issue_refund"]["content"])["refunded_pence"]))
    except (ValueError, TypeError, KeyError):
        return pounds(request.amount_pence)


def _asks(text: str, tool: str, arguments: dict[str, Any], tokens: int, cost: str) -> Reply:
    return reply(
        text,
        tool_calls=[(tool, arguments)],
        input_tokens=tokens,
        output_tokens=60,
        cost=cost,
        delay=THINKING_SECONDS,
    )


def _said(text: str, tokens: int, cost: str) -> Reply:
    return reply(text, input_tokens=tokens, output_tokens=len(text) // 4, cost=cost, delay=THINKING_SECONDS)
