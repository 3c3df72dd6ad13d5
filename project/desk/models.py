"""What the desk keeps: orders, and the refunds of them."""

from __future__ import annotations

import re

from django.db import models
from django.db.models import Sum

ORDER_NUMBER = re.compile(r"\bA-\d{3,}\b")


class Order(models.Model):
    """One order of one customer. ``paid_pence`` is in pence, with which no rounding goes wrong."""

    number = models.CharField(max_length=20, unique=True)
    customer = models.CharField(max_length=100)
    email = models.EmailField()
    item = models.CharField(max_length=200)
    paid_pence = models.PositiveIntegerField()
    placed_on = models.DateField()

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.number

    @property
    def refunded_pence(self) -> int:
        """What was given back so far, in pence."""
        return self.refunds.aggregate(sum=Sum("amount_pence"))["sum"] or 0


class Refund(models.Model):
    """Money given back on one order, in pence. ``tool_call`` is the id of the call that made it."""

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="refunds")
    amount_pence = models.PositiveIntegerField()
    reason = models.CharField(max_length=500)
    tool_call = models.BigIntegerField(null=True, blank=True, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{pounds(self.amount_pence)} on {self.order}"


def pounds(pence: int) -> str:
    """An amount as people read it: ``£18.00``."""
    return f"£{pence // 100:,}.{pence % 100:02}"
