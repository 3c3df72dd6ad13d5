"""Money in a database column: whole nano-dollars stored, ``Decimal`` dollars everywhere else."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django import forms
from django.core.exceptions import FieldError, ValidationError
from django.db import models
from django.db.models import lookups
from django.db.models.expressions import Combinable, Value, register_combinable_fields
from django.db.models.query_utils import DeferredAttribute

from agentturns.usd import parse_usd

NANO: Final = 10**9
_NANO_PER_CENT: Final = NANO // 100

Amount = Decimal | int | str

_Set = TypeVar("_Set", contravariant=True)
_Get = TypeVar("_Get", covariant=True)

if TYPE_CHECKING:
    _Field = models.Field
else:

    class _Field(models.Field):
        """``models.Field`` that takes the type arguments its stubs declare."""

        def __class_getitem__(cls, types: object) -> type:
            return cls


def to_nano(amount: Decimal) -> int:
    """USD as whole nano-dollars. Raises ``ValueError`` for an amount with a fraction of one."""
    return int(parse_usd(amount, "amount") * NANO)


def from_nano(nano: Any) -> Decimal:
    """USD from nano-dollars as a database gives them: ``int``, or ``Decimal`` or ``float`` from an aggregate."""
    whole = nano if isinstance(nano, int) else int(Decimal(nano).to_integral_value(rounding=ROUND_HALF_UP))
    cents, rest = divmod(whole, _NANO_PER_CENT)
    return Decimal(whole).scaleb(-9) if rest else Decimal(cents).scaleb(-2)


def usd(amount: Amount) -> Value:
    """An amount as a query expression: ``F("cost") + usd("0.25")``. Raises ``ValueError`` as ``parse_usd`` does."""
    return Value(parse_usd(amount, "amount"), output_field=NanoUSDField())


class _NormalisedAttribute(DeferredAttribute):
    """Turns what is assigned into ``Decimal`` at once, so that a wrong value fails where it is written."""

    field: NanoUSDField[Any, Any]

    def __set__(self, instance: models.Model, value: Any) -> None:
        if value is not None and not hasattr(value, "resolve_expression"):
            value = parse_usd(value, f"{type(instance).__name__}.{self.field.attname}")
        instance.__dict__[self.field.attname] = value


class NanoUSDField(_Field[_Set, _Get]):
    """USD, exact to the nano-dollar: an integer column that reads and writes as ``Decimal``.

    Takes ``Decimal``, ``int`` or text, and refuses a float or a tenth decimal with ``ValueError``. ``Sum``, filters,
    ordering and ``F()`` are exact. It is no ``IntegerField``, so that a bare number in ``F()`` arithmetic raises
    ``FieldError`` where it would otherwise count nano-dollars; write ``usd(…)``.
    """

    description = "USD, exact to the nano-dollar"
    empty_strings_allowed = False
    descriptor_class = _NormalisedAttribute

    if TYPE_CHECKING:  # what mypy_django_plugin gives to a field declared without type arguments
        _pyi_private_set_type: Amount | Combinable
        _pyi_private_get_type: Decimal
        _pyi_lookup_exact_type: Amount

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "agentturns.money.fields.NanoUSDField", args, kwargs

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def get_default(self) -> Any:
        default = super().get_default()
        return default if default is None else parse_usd(default, self.name or "default")

    def to_python(self, value: Any) -> Any:
        if value is None:
            return None
        try:
            return parse_usd(value, self.name or "amount")
        except ValueError as error:
            raise ValidationError(str(error), code="invalid") from None

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Decimal | None:
        return None if value is None else from_nano(value)

    def get_prep_value(self, value: Any) -> Any:
        value = super().get_prep_value(value)
        if value is None or hasattr(value, "resolve_expression"):
            return value
        return parse_usd(value, self.name or "amount")

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        value = super().get_db_prep_value(value, connection, prepared)
        return to_nano(value) if isinstance(value, Decimal) else value

    def get_placeholder(self, value: Any, compiler: Any, connection: Any) -> str:
        """``%s``, after a look at an expression about to be written, which Django itself would not check."""
        _require_money(value)
        return "%s"

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        value = super().pre_save(model_instance, add)
        if add:  # an INSERT never asks for the placeholder of an expression
            _require_money(value)
        return value

    def value_to_string(self, obj: models.Model) -> str:
        value = self.value_from_object(obj)
        return "" if value is None else format(value, "f")

    def formfield(self, **kwargs: Any) -> Any:
        return super().formfield(**{"form_class": forms.DecimalField, "max_digits": 19, "decimal_places": 9, **kwargs})


def _require_money(value: Any) -> None:
    """Raise ``FieldError`` where ``value`` is an expression of another kind than money."""
    if not hasattr(value, "resolve_expression") or (isinstance(value, Value) and value.value is None):
        return
    found = value.output_field
    if not isinstance(found, NanoUSDField):
        raise FieldError(
            f"{value} is a {type(found).__name__} where money is expected; wrap a literal as usd('0.25') from "
            "agentturns.money.fields."
        )


class _MoneyOnTheRight(lookups.Lookup):
    """Compares money with money only: Django compiles ``F("cost") + 1`` on the right without checking its type."""

    def process_rhs(self, compiler: Any, connection: Any) -> Any:
        for value in self.rhs if isinstance(self.rhs, list | tuple | set) else (self.rhs,):
            _require_money(value)
        return super().process_rhs(compiler, connection)


_COMPARISONS: Iterable[type[lookups.Lookup]] = (
    lookups.Exact,
    lookups.GreaterThan,
    lookups.GreaterThanOrEqual,
    lookups.LessThan,
    lookups.LessThanOrEqual,
    lookups.In,
    lookups.Range,
)
for _comparison in _COMPARISONS:
    NanoUSDField.register_lookup(type(f"Money{_comparison.__name__}", (_MoneyOnTheRight, _comparison), {}))

for _connector in (Combinable.ADD, Combinable.SUB):
    register_combinable_fields(NanoUSDField, _connector, NanoUSDField, NanoUSDField)
