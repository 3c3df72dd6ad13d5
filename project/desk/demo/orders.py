"""Orders to talk about."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from project.desk.models import Order

PEOPLE: Final = ("Ada Byron", "Grace Murray", "Alan Mathison", "Hedwig Kiesler", "Edsger Wybe")
ITEMS: Final = ("a blue teapot", "two garden chairs", "a desk lamp", "a walnut shelf", "a bread knife")
FIRST_NUMBER: Final = 1001


def new_order(paid_pence: int) -> Order:
    """An order that no refund was made on yet, with the next free number."""
    with transaction.atomic():
        # The last row is locked, so that two demos at once do not choose one number.
        last = Order.objects.select_for_update().order_by("-id").first()
        place = last.pk if last else 0
        customer, item = _at(PEOPLE, place), _at(ITEMS, place)
        return Order.objects.create(
            number=f"A-{FIRST_NUMBER + place}",
            customer=customer,
            email=f"{customer.split()[0].lower()}@example.com",
            item=item,
            paid_pence=paid_pence,
            placed_on=timezone.localdate() - timedelta(days=3),
        )


def _at(names: tuple[str, ...], place: int) -> str:
    return names[place % len(names)]
