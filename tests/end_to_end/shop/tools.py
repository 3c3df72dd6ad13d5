"""One tool of each effect. Each has its effect first, then reports to the test, so that it can be cut off after it."""

from __future__ import annotations

import os
from typing import Any

from agentturns import tool
from project.desk.models import Order, Refund
from tests.end_to_end.shop.door import report_inside


def _note(name: str) -> None:
    """Leave a line in a file: an effect outside the database, which no rollback undoes."""
    file = os.open(os.environ["SHOP_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{name}\n".encode())
    os.close(file)


@tool(effect="idempotent")
def look_up(order_number: str) -> str:
    """Look an order up by its number."""
    _note("look_up")
    report_inside("look_up")
    return f"Order {order_number} was delivered on Monday."


@tool(effect="transactional")
def issue_refund(order_number: str, amount_pence: int) -> dict[str, Any]:
    """Refund an order, in pence."""
    # The row names no call: nothing but the engine keeps a second refund out.
    Refund.objects.create(order=Order.objects.get(number=order_number), amount_pence=amount_pence, reason="asked for")
    report_inside("issue_refund")
    return {"refunded_pence": amount_pence}


@tool(effect="at_most_once")
def send_letter(text: str) -> str:
    """Send a letter to the customer."""
    _note("send_letter")
    report_inside("send_letter")
    return "The letter is on its way."
