"""Money in the database is exact, and says no to what would not be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import FieldError, ValidationError
from django.db import connection, models, transaction
from django.db.models import Avg, Case, F, Max, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce
from django.test.utils import isolate_apps
from hypothesis import given
from hypothesis import strategies as st

from agentturns.money.fields import NanoUSDField, from_nano, to_nano, usd
from agentturns.usd import LARGEST_USD, parse_usd, round_usd

NANO = Decimal("0.000000001")
amounts = st.integers(-9 * 10**18, 9 * 10**18).map(lambda nano: Decimal(nano).scaleb(-9))


@pytest.fixture(scope="module")
def bill(django_db_setup: None, django_db_blocker: Any) -> Iterator[type[models.Model]]:
    """A model with a sum that is always there and one that may be missing, and its table."""
    with isolate_apps("agentturns"), django_db_blocker.unblock():

        class Bill(models.Model):
            cost = NanoUSDField(default=0)
            extra = NanoUSDField(null=True, blank=True)
            pieces = models.IntegerField(default=0)

            class Meta:
                app_label = "agentturns"

            def __str__(self) -> str:
                return f"bill over {self.cost}"

        with connection.schema_editor() as editor:
            editor.create_model(Bill)
        yield Bill
        with connection.schema_editor() as editor:
            editor.delete_model(Bill)


@pytest.fixture
def bills(bill: Any, db: None) -> Any:
    """Three bills: a tenth, a fifth and one nano-dollar."""
    for cost in ("0.1", "0.2", NANO):
        bill.objects.create(cost=cost)
    return bill.objects


def test_a_sum_comes_back_as_the_decimal_that_was_stored(bill: Any, db: None) -> None:
    made = bill.objects.create(cost=Decimal("0.123456789"), extra="2")
    assert bill.objects.get(pk=made.pk).cost == Decimal("0.123456789")
    assert bill.objects.get(pk=made.pk).extra == Decimal(2)


def test_a_missing_sum_is_none_and_not_zero(bill: Any, db: None) -> None:
    made = bill.objects.create()
    assert (made.cost, made.extra) == (Decimal(0), None)
    assert list(bill.objects.filter(extra__isnull=True)) == [made]


def test_an_assigned_value_is_a_decimal_at_once(bill: Any) -> None:
    assert isinstance(bill(cost="0.25").cost, Decimal)
    assert isinstance(bill().cost, Decimal)


def test_sums_are_exact(bills: Any) -> None:
    total = bills.aggregate(total=Sum("cost"), most=Max("cost"), nothing=Sum("extra"))
    assert total == {"total": Decimal("0.300000001"), "most": Decimal("0.2"), "nothing": None}


def test_a_thousand_small_costs_add_up_exactly(bill: Any, db: None) -> None:
    bill.objects.bulk_create([bill(cost="0.1") for _ in range(1000)])
    assert bill.objects.aggregate(total=Sum("cost"))["total"] == Decimal(100)


def test_an_average_is_rounded_to_whole_nano_dollars(bills: Any) -> None:
    assert bills.aggregate(mean=Avg("cost"))["mean"] == Decimal("0.1")


def test_filters_compare_exactly(bills: Any) -> None:
    assert bills.filter(cost=Decimal("0.1")).count() == 1
    assert bills.filter(cost__gt="0.1").count() == 1
    assert bills.filter(cost__lte=NANO).count() == 1
    assert bills.filter(cost__in=["0.1", NANO]).count() == 2
    assert bills.filter(cost__range=(0, Decimal("0.15"))).count() == 2
    assert bills.exclude(cost__lt=usd("0.2")).count() == 1


def test_a_filter_compares_with_the_sums_of_a_subquery(bills: Any) -> None:
    dearest = bills.order_by("-cost").values("cost")[:1]
    assert bills.filter(cost=Subquery(dearest)).count() == 1
    assert bills.filter(cost__in=bills.filter(cost__lt="0.2").values("cost")).count() == 2
    assert bills.filter(cost__lt=Subquery(dearest) + usd(1)).count() == 3


def test_ordering_is_by_amount(bills: Any) -> None:
    bills.create(cost=10)
    found = list(bills.order_by("-cost").values_list("cost", flat=True))
    assert found == [Decimal(10), Decimal("0.2"), Decimal("0.1"), NANO]


def test_a_wrapped_literal_adds_and_subtracts_exactly(bills: Any) -> None:
    bills.update(cost=F("cost") + usd("0.25") - usd(NANO))
    assert bills.aggregate(total=Sum("cost"))["total"] == Decimal("1.049999998")


def test_sums_of_columns_can_be_selected_and_filtered(bills: Any) -> None:
    found = bills.annotate(total=F("cost") + Coalesce("extra", usd(1))).filter(total__gt=usd("1.1"))
    assert list(found.values_list("total", flat=True)) == [Decimal("1.2")]


def test_conditional_updates_keep_their_amounts(bills: Any) -> None:
    bills.update(extra=Case(When(cost__gt="0.1", then=usd(5)), default=Value(None)))
    assert list(bills.order_by("extra").exclude(extra=None).values_list("extra", flat=True)) == [Decimal(5)]


def test_bulk_updates_write_amounts(bills: Any) -> None:
    found = list(bills.all())
    for one in found:
        one.cost = "1.5"
    bills.bulk_update(found, ["cost"])
    assert set(bills.values_list("cost", flat=True)) == {Decimal("1.5")}


MIXED: dict[str, Callable[[Any], Any]] = {
    "update with a Decimal": lambda bills: bills.update(cost=F("cost") + Decimal("0.25")),
    "update with an int": lambda bills: bills.update(cost=F("cost") + 1),
    "update with a number first": lambda bills: bills.update(cost=1 + F("cost")),
    "update with another column": lambda bills: bills.update(cost=F("pieces")),
    "update with a product": lambda bills: bills.update(cost=F("cost") * 2),
    "update with a default": lambda bills: bills.update(cost=Coalesce("extra", 0)),
    "update with a bare value": lambda bills: bills.update(cost=Value(3)),
    "insert of a bare value": lambda bills: bills.create(cost=Value(3)),
    "filter": lambda bills: list(bills.filter(cost__gt=F("cost") + Decimal("0.25"))),
    "filter by another column": lambda bills: list(bills.filter(cost__gte=F("pieces"))),
    "filter in a list of columns": lambda bills: list(bills.filter(cost__in=[F("pieces")])),
    "filter in a range of columns": lambda bills: list(bills.filter(cost__range=(F("pieces"), usd(3)))),
    "filter in a list": lambda bills: list(bills.filter(cost__in=[F("extra") + 1])),
    "filter in a range": lambda bills: list(bills.filter(cost__range=(F("extra") + 1, usd(3)))),
    "annotation": lambda bills: list(bills.annotate(more=F("cost") + 1)),
    "aggregate": lambda bills: bills.aggregate(total=Sum(F("cost") + 1)),
}


@pytest.mark.parametrize("query", MIXED.values(), ids=MIXED.keys())
def test_a_bare_number_among_money_raises(bills: Any, query: Callable[[Any], Any]) -> None:
    with pytest.raises(FieldError), transaction.atomic():
        query(bills)
    assert bills.filter(cost__in=["0.1", "0.2", NANO]).count() == 3


def test_a_bare_number_saved_through_an_instance_raises(bills: Any) -> None:
    one = bills.first()
    one.cost = F("cost") + Decimal("0.25")
    with pytest.raises(FieldError), transaction.atomic():
        one.save()


REFUSED = {
    "a float": (0.25, r"cost=0\.25 is a float.*write Decimal\('0\.25'\)"),
    "a tenth decimal": ("0.0000000001", "more than nine decimals"),
    "NaN": (Decimal("NaN"), "not a finite amount"),
    "infinity": ("inf", "not a finite amount"),
    "words": ("a lot", "not a number"),
    "True": (True, "is a bool"),
    "too much": (LARGEST_USD + 1, "the largest sum"),
}


@pytest.mark.parametrize(("value", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_a_value_that_is_no_exact_sum_is_refused(bill: Any, db: None, value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        bill(cost=value)
    with pytest.raises(ValueError, match=sentence):
        bill.objects.filter(cost=value).count()
    with pytest.raises(ValidationError):
        bill._meta.get_field("cost").to_python(value)


def test_a_form_takes_nine_decimals(bill: Any) -> None:
    field = bill._meta.get_field("cost").formfield()
    assert field.clean("0.000000001") == NANO
    with pytest.raises(ValidationError):
        field.clean("0.0000000001")


def test_a_migration_names_the_field_by_its_home(bill: Any) -> None:
    assert bill._meta.get_field("cost").deconstruct()[1] == "agentturns.money.fields.NanoUSDField"


def test_a_sum_is_stored_as_whole_nano_dollars(bills: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT SUM(cost) FROM {bills.model._meta.db_table}")
        assert int(cursor.fetchone()[0]) == 300_000_001


@given(amounts)
def test_nano_dollars_and_back_is_the_same_amount(amount: Decimal) -> None:
    assert from_nano(to_nano(amount)) == amount


@given(amounts, amounts)
def test_money_keeps_its_order_in_nano_dollars(one: Decimal, other: Decimal) -> None:
    assert (to_nano(one) < to_nano(other)) == (one < other)


@pytest.mark.parametrize(
    ("amount", "rounded"),
    [("0.0000000005", "0.000000001"), ("0.00000000049", "0"), ("-0.0000000005", "-0.000000001"), ("1", "1")],
)
def test_money_is_rounded_half_up(amount: str, rounded: str) -> None:
    assert round_usd(Decimal(amount)) == Decimal(rounded)


def test_nothing_reads_as_zero_and_not_as_an_exponent() -> None:
    assert str(from_nano(0)) == "0.00"


def test_an_amount_is_read_from_text_with_blanks_around_it() -> None:
    assert parse_usd(" 0.25 ", "max_cost") == Decimal("0.25")
