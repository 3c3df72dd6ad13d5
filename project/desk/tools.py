"""What the desk's agent can do: one tool of each effect."""

from __future__ import annotations

from typing import Annotated, Any

from django.core.mail import EmailMessage
from pydantic import Field

from agentturns import ApprovalRequest, TurnState, tool
from project.desk.models import Order, Refund, pounds

MOST_WITHOUT_ASKING = 25_00  # pence


@tool(effect="idempotent")
def find_order(order_number: str) -> dict[str, Any]:
    """Look an order up by its number, such as A-1001: the item, the customer, what was paid and refunded (pence)."""
    order = _order(order_number)
    return {
        "order_number": order.number,
        "customer": order.customer,
        "item": order.item,
        "placed_on": order.placed_on.isoformat(),
        "paid_pence": order.paid_pence,
        "refunded_pence": order.refunded_pence,
    }


def _is_large(request: ApprovalRequest) -> bool:
    return bool(request.arguments["amount_pence"] > MOST_WITHOUT_ASKING)


@tool(effect="transactional", approval=_is_large)
def issue_refund(
    order_number: str, amount_pence: Annotated[int, Field(gt=0)], reason: str, state: TurnState
) -> dict[str, Any]:
    """Refund part or all of an order, in pence. A refund of more than £25.00 waits until a person approves it."""
    # The lock keeps two turns from refunding the same order twice over.
    order = _order(order_number, for_update=True)
    left = order.paid_pence - order.refunded_pence
    if amount_pence > left:
        raise ValueError(f"Order {order.number} can be refunded {pounds(left)} at most, not {pounds(amount_pence)}.")
    call = state.current_tool_call
    Refund.objects.create(
        order=order, amount_pence=amount_pence, reason=reason[:500], tool_call=call.pk if call else None
    )
    return {"order_number": order.number, "refunded_pence": amount_pence, "left_pence": left - amount_pence}


@tool(effect="at_most_once")
def notify_customer(order_number: str, subject: str, message: str, state: TurnState) -> str:
    """Send an e-mail to the customer of an order. Nobody can call it back, so send one a request."""
    order = _order(order_number)
    call = state.current_tool_call
    EmailMessage(
        subject=" ".join(subject.split())[:200],
        body=message,
        to=[order.email],
        # An outside system that is given the call's key can tell a second message from a new one.
        headers={"X-Tool-Call": str(call.pk)} if call else {},
    ).send()
    return f"Sent to {order.customer}."


def _order(number: str, *, for_update: bool = False) -> Order:
    orders = Order.objects.select_for_update() if for_update else Order.objects.all()
    order = orders.filter(number=number.strip().upper()).first()
    if order is None:
        raise LookupError(f"There is no order {number!r}; ask the customer for the number on the receipt.")
    return order
