"""A refund desk: small refunds go through, larger ones wait for a person, and each is written exactly once.

Run it from the repository's root: ``python docs/examples/refund_desk.py``. No key is needed.
"""

# Django must be set up before models are declared, which an app need not think of.
# ruff: noqa: E402, DJ008

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from temporary_project import create_tables, start

start()

from django.contrib.auth import get_user_model
from django.db import models

from agentturns import Agent, ApprovalRequest, Denied, Limits, ToolCall, Turn, TurnState, tool
from agentturns.testing import ScriptedModel, drain, reply

# -- models.py ---------------------------------------------------------------------------------------------------------


class Order(models.Model):
    """An order as the shop knows it. ``paid_pence`` is what the customer paid."""

    number = models.CharField(max_length=20, unique=True)
    customer = models.EmailField()
    paid_pence = models.PositiveIntegerField()

    class Meta:
        app_label = "refund_desk"


class Refund(models.Model):
    """Money given back for an order."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    pence = models.PositiveIntegerField()
    turn = models.ForeignKey("agentturns.Turn", on_delete=models.PROTECT)

    class Meta:
        app_label = "refund_desk"


# -- agents.py ---------------------------------------------------------------------------------------------------------


def needs_a_person(request: ApprovalRequest) -> bool | Denied:
    """Up to £25 goes through; above it a person decides; above what was paid nobody needs to be asked."""
    pence = request.arguments["pence"]
    order = Order.objects.filter(number=request.arguments["number"]).first()
    if order is not None and pence > order.paid_pence:
        return Denied(f"only {order.paid_pence} pence were paid for {order.number}.")
    return bool(pence > 2500)


@tool(effect="idempotent")
def find_order(number: str) -> dict[str, Any]:
    """Look an order up by its number. Amounts are in pence."""
    order = Order.objects.get(number=number)
    return {"number": order.number, "customer": order.customer, "paid_pence": order.paid_pence}


@tool(effect="transactional", approval=needs_a_person)
def issue_refund(number: str, pence: int, state: TurnState) -> dict[str, Any]:
    """Give back part or all of what was paid for an order. Amounts are in pence."""
    # The row and the record that this call is done are one transaction: a crash leaves both or neither.
    refund = Refund.objects.create(order=Order.objects.get(number=number), pence=pence, turn_id=state.turn.pk)
    return {"refund": refund.pk, "pence": pence}


sent: list[str] = []


@tool(effect="at_most_once")
def email_customer(address: str, text: str, state: TurnState) -> str:
    """Send the customer one e-mail."""
    # An outside effect. Give the other side the call's key, so that you can look there after a crash.
    sent.append(f"[call {state.current_tool_call.pk}] to {address}: {text}")
    return "sent"


def script(request: Any) -> Any:
    """Stands in for a model: look up, refund, write, answer. It sees nothing but the conversation."""
    asked = next(message["content"] for message in request.messages if message["role"] == "user")
    number, pence = asked.split()[2], int(asked.split()[-1])
    results = {message["name"]: message for message in request.messages if message["role"] == "tool"}
    if "find_order" not in results:
        return reply(tool_calls=[("find_order", {"number": number})], input_tokens=400, cost="0.002")
    if "issue_refund" not in results:
        return reply(tool_calls=[("issue_refund", {"number": number, "pence": pence})], input_tokens=500, cost="0.002")
    if results["issue_refund"]["content"].startswith("Not run"):
        return reply(f"No refund for {number}. {results['issue_refund']['content']}", input_tokens=600, cost="0.002")
    if "email_customer" not in results:
        customer = json.loads(results["find_order"]["content"])["customer"]
        mail = {"address": customer, "text": f"We refunded {pence} pence for {number}."}
        return reply(tool_calls=[("email_customer", mail)], input_tokens=600, cost="0.002")
    return reply(f"Refunded {pence} pence for {number} and told the customer.", input_tokens=700, cost="0.002")


desk = Agent(
    name="refund-desk",
    model=ScriptedModel(script, name="refund-desk"),  # yours: "anthropic:claude-sonnet-5"
    instructions="You refund orders. Look the order up first; after a refund write the customer one e-mail.",
    tools=[find_order, issue_refund, email_customer],
    limits=Limits(max_cost=Decimal("0.25"), max_tool_calls=10),
)


# -- what happens ------------------------------------------------------------------------------------------------------


def show(turns: list[Turn]) -> None:
    for turn in turns:
        print(f"  {turn.input:<32} {turn.status:<10} {turn.answer or turn.waiting_for}")


def main() -> None:
    create_tables(Order, Refund)
    for number, paid in (("A-1", 1900), ("A-2", 8000), ("A-3", 9900), ("A-4", 3000)):
        Order.objects.create(number=number, customer=f"{number.lower()}@example.com", paid_pence=paid)
    turns = [
        desk.start("Refund order A-1 pence 1900"),
        desk.start("Refund order A-2 pence 8000"),
        desk.start("Refund order A-3 pence 9900"),
        desk.start("Refund order A-4 pence 4000"),
    ]

    print("A worker runs what it may:")
    drain()
    show(list(Turn.objects.filter(pk__in=[turn.pk for turn in turns]).order_by("pk")))

    # In the admin these are buttons. ``by`` checks the permission and signs the decision.
    maria = get_user_model().objects.create_superuser("maria")
    for call in ToolCall.objects.awaiting_decision():
        print(f"\nTo decide: {call.name} {call.arguments}")
        if call.arguments["pence"] <= 8000:
            call.approve(by=maria, note="customer since 2019")
        else:
            call.decline(by=maria, reason="the parcel is still on its way back")
        print(f"  {call.approval} by {call.decided_by_name}")

    print("\nThe worker goes on where it stopped:")
    drain()
    show(list(Turn.objects.filter(pk__in=[turn.pk for turn in turns]).order_by("pk")))

    print("\nRefunds:", ", ".join(f"{refund.order.number} {refund.pence}" for refund in Refund.objects.order_by("pk")))
    print("E-mails:", *sent, sep="\n  ")
    spend = Turn.objects.spend()
    print(f"Spent: ${spend['cost']:.4f} in {spend['steps']} model calls of {spend['turns']} turns")


if __name__ == "__main__":
    main()
