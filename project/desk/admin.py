"""Orders and refunds in the admin, to see what the tools did."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from project.desk.models import Order, Refund, pounds


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ("number", "customer", "item", "paid", "placed_on")
    search_fields = ("number", "customer", "item")

    @admin.display(ordering="paid_pence")
    def paid(self, order: Order) -> str:
        return pounds(order.paid_pence)


@admin.register(Refund)
class RefundAdmin(admin.ModelAdmin):
    """Refunds are made by the desk's tool alone, so the page only shows them."""

    list_display = ("order", "amount", "reason", "tool_call", "created_at")
    list_select_related = ("order",)

    @admin.display(ordering="amount_pence")
    def amount(self, refund: Refund) -> str:
        return pounds(refund.amount_pence)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Refund | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Refund | None = None) -> bool:
        return False
