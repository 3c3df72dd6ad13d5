"""Orders and refunds as the admin shows them."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from project.desk.demo.orders import new_order
from project.desk.models import ORDER_NUMBER, Refund

pytestmark = pytest.mark.django_db


@pytest.fixture
def refund() -> Refund:
    return Refund.objects.create(order=new_order(1800), amount_pence=550, reason="<b>broken</b>", tool_call=7)


def test_orders_and_refunds_are_listed_in_pounds(admin_client: Client, refund: Refund) -> None:
    orders = admin_client.get(reverse("admin:desk_order_changelist"))
    refunds = admin_client.get(reverse("admin:desk_refund_changelist"))
    assert "£18.00" in orders.text
    assert "£5.50" in refunds.text
    assert "<b>broken</b>" not in refunds.text


def test_a_refund_is_only_shown(admin_client: Client, refund: Refund) -> None:
    page = reverse("admin:desk_refund_change", args=[refund.pk])
    assert admin_client.get(page).status_code == 200
    assert admin_client.post(page, {"amount_pence": 1}).status_code == 403
    assert admin_client.get(reverse("admin:desk_refund_add")).status_code == 403
    assert admin_client.post(reverse("admin:desk_refund_delete", args=[refund.pk])).status_code == 403


def test_orders_get_numbers_of_their_own() -> None:
    numbers = [new_order(100).number for _ in range(3)]
    assert len(set(numbers)) == 3
    assert all(ORDER_NUMBER.fullmatch(number) for number in numbers)
