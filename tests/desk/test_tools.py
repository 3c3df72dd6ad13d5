"""What the desk's tools do to orders, refunds and customers."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from django.core.mail import EmailMessage

from agentturns import ApprovalRequest, TurnState
from project.desk.models import Order, Refund, pounds
from project.desk.tools import find_order, issue_refund, notify_customer

pytestmark = pytest.mark.django_db


@pytest.fixture
def order() -> Order:
    return Order.objects.create(
        number="A-1001",
        customer="Ada Byron",
        email="ada@example.com",
        item="a teapot",
        paid_pence=1800,
        placed_on=date(2026, 11, 1),
    )


@pytest.fixture
def state() -> TurnState:
    return TurnState(turn=None, session=None)


def test_an_order_is_found_by_its_number_however_it_is_written(order: Order) -> None:
    found = find_order(" a-1001 ")
    assert found == {
        "order_number": "A-1001",
        "customer": "Ada Byron",
        "item": "a teapot",
        "placed_on": "2026-11-01",
        "paid_pence": 1800,
        "refunded_pence": 0,
    }


def test_the_model_is_told_of_no_address_it_could_write_to(order: Order) -> None:
    assert "ada@example.com" not in str(find_order("A-1001"))


def test_an_unknown_order_is_a_sentence_for_the_customer(order: Order) -> None:
    with pytest.raises(LookupError, match=r"There is no order 'A-9'; ask the customer for the number on the receipt\."):
        find_order("A-9")


def test_a_refund_is_a_row_and_counts_against_what_was_paid(order: Order, state: TurnState) -> None:
    told = issue_refund("A-1001", 500, "broken", state)
    assert told == {"order_number": "A-1001", "refunded_pence": 500, "left_pence": 1300}
    assert [(refund.order, refund.amount_pence, refund.reason) for refund in Refund.objects.all()] == [
        (order, 500, "broken")
    ]
    assert order.refunded_pence == 500


def test_no_more_is_refunded_than_was_paid(order: Order, state: TurnState) -> None:
    issue_refund("A-1001", 1000, "broken", state)
    with pytest.raises(ValueError, match=r"can be refunded £8\.00 at most, not £8\.01"):
        issue_refund("A-1001", 801, "broken", state)
    assert order.refunded_pence == 1000


@pytest.mark.parametrize(("pence", "asks"), [(2500, False), (2501, True)])
def test_only_a_refund_above_25_pounds_asks_a_person(pence: int, asks: bool, state: TurnState) -> None:
    assert callable(issue_refund.approval)
    assert issue_refund.approval(ApprovalRequest(issue_refund, {"amount_pence": pence}, state)) is asks


def test_a_refund_of_nothing_does_not_fit_the_tool() -> None:
    with pytest.raises(ValueError, match="amount_pence: Input should be greater than 0"):
        issue_refund.validate({"order_number": "A-1001", "amount_pence": 0, "reason": ""})


def test_an_email_goes_to_the_orders_customer(order: Order, state: TurnState, mailoutbox: list[EmailMessage]) -> None:
    assert notify_customer("A-1001", "Your\norder", "It is on its way.", state) == "Sent to Ada Byron."
    (sent,) = mailoutbox
    assert (sent.to, sent.subject, sent.body) == (["ada@example.com"], "Your order", "It is on its way.")


def test_each_tool_declares_its_effect() -> None:
    effects: dict[str, Any] = {tool.name: tool.effect for tool in (find_order, issue_refund, notify_customer)}
    assert effects == {
        "find_order": "idempotent",
        "issue_refund": "transactional",
        "notify_customer": "at_most_once",
    }


@pytest.mark.parametrize(("pence", "text"), [(0, "£0.00"), (5, "£0.05"), (1800, "£18.00"), (123456, "£1,234.56")])
def test_pence_read_as_pounds(pence: int, text: str) -> None:
    assert pounds(pence) == text
