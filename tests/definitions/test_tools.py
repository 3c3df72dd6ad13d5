"""What ``@tool`` makes of a function: its schema, what it accepts, and a sentence for each wrong declaration."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

import pydantic
import pytest
from pydantic import AfterValidator, BaseModel, Field

from agentturns import ConfigurationError, Tool, TurnState, tool
from agentturns.definitions.tools import InvalidArguments


class Size(StrEnum):
    """A size."""

    SMALL = "small"
    LARGE = "large"


class Address(BaseModel):
    street: str
    number: int = 1


def lucky(pence: int) -> int:
    if pence == 13:
        raise ValueError("13 is unlucky")
    return 1 // pence


def test_the_schema_comes_from_the_signature_and_the_description_from_the_docstring() -> None:
    @tool
    def refund(order: str, pence: int, reason: str = "none") -> None:
        """Refund an order.

        In part, or all of it.
        """

    assert refund.definition() == {
        "name": "refund",
        "description": "Refund an order.\n\nIn part, or all of it.",
        "parameters": {
            "type": "object",
            "properties": {
                "order": {"type": "string"},
                "pence": {"type": "integer"},
                "reason": {"type": "string", "default": "none"},
            },
            "required": ["order", "pence"],
            "additionalProperties": False,
        },
    }


def test_a_tool_without_parameters_still_has_an_object_schema() -> None:
    @tool
    def ping() -> None:
        """Ping."""

    assert ping.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert ping.validate({}) == ({}, {})


@pytest.mark.parametrize(
    ("annotation", "schema", "sent", "value", "kept"),
    [
        (float, {"type": "number"}, 2, 2.0, 2.0),
        (bool, {"type": "boolean"}, True, True, True),
        (list[str], {"type": "array", "items": {"type": "string"}}, ["a"], ["a"], ["a"]),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None, None),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b", "b"),
        (date, {"type": "string", "format": "date"}, "2026-02-01", date(2026, 2, 1), "2026-02-01"),
        (
            Annotated[int, Field(ge=1, description="How many.")],
            {"type": "integer", "minimum": 1, "description": "How many."},
            3,
            3,
            3,
        ),
    ],
)
def test_types_reach_the_tool_as_python_values_and_the_row_as_json(
    annotation: Any, schema: dict[str, Any], sent: Any, value: Any, kept: Any
) -> None:
    def take(x: Any) -> None:
        """Take."""

    take.__annotations__["x"] = annotation
    taker = tool(take)
    assert taker.parameters["properties"]["x"] == schema
    assert taker.validate({"x": sent}) == ({"x": value}, {"x": kept})


def test_models_enumerations_and_decimals_are_described_and_kept_as_json() -> None:
    @tool
    def send(to: Address, size: Size, price: Decimal) -> None:
        """Send."""

    assert send.parameters["properties"]["to"] == {"$ref": "#/$defs/Address"}
    assert send.parameters["$defs"]["Size"]["enum"] == ["small", "large"]
    values, kept = send.validate({"to": {"street": "High"}, "size": "small", "price": "2.50"})
    assert values == {"to": Address(street="High"), "size": Size.SMALL, "price": Decimal("2.50")}
    assert kept == {"to": {"street": "High", "number": 1}, "size": "small", "price": "2.50"}


@pytest.mark.parametrize("name", ["schema", "json", "copy", "model_config", "model_dump", "_id", "self"])
def test_a_parameter_may_have_a_name_that_pydantic_keeps_for_itself(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def look({name}: str) -> str:\n    'Look.'\n    return {name}", namespace)
    look = tool(namespace["look"])
    assert list(look.parameters["properties"]) == [name]
    assert look.validate({name: "v"}) == ({name: "v"}, {name: "v"})
    assert look(**look.validate({name: "v"})[0]) == "v"


@pytest.mark.parametrize("annotation", [TurnState, TurnState | None, Annotated[TurnState, "the state"]])
def test_the_parameter_that_takes_the_state_is_hidden_from_the_model_and_refused_from_it(annotation: Any) -> None:
    def look(order: str, state: Any = None) -> None:
        """Look."""

    look.__annotations__["state"] = annotation
    looker = tool(look)
    assert looker.state_parameter == "state"
    assert list(looker.parameters["properties"]) == ["order"]
    assert "TurnState" not in str(looker.definition())
    with pytest.raises(InvalidArguments, match="state: Extra inputs are not permitted"):
        looker.validate({"order": "A1", "state": {"tenant": "another"}})


def test_a_tool_may_be_async_and_stays_callable_from_code() -> None:
    @tool
    async def double(x: int) -> int:
        """Double."""
        return 2 * x

    @tool
    def treble(x: int) -> int:
        """Treble."""
        return 3 * x

    assert (double.is_async, treble.is_async) == (True, False)
    assert asyncio.run(double(2)) == 4
    assert treble(2) == 6


def test_a_bare_decorator_means_at_most_once_and_no_approval() -> None:
    @tool
    def act() -> None:
        """Act."""

    assert isinstance(act, Tool)
    assert (act.name, act.effect, act.approval, act.timeout, act.halts) == ("act", "at_most_once", "never", None, False)
    assert not act.can_ask


def test_options_are_kept_and_a_gate_may_ask() -> None:
    def gate(request: Any) -> bool:
        return True

    @tool(effect="transactional", approval=gate, timeout=2.5, halts=True, name="pay-out")
    def act() -> None:
        """Act."""

    assert (act.name, act.effect, act.approval, act.timeout, act.halts) == (
        "pay-out",
        "transactional",
        gate,
        2.5,
        True,
    )
    assert act.can_ask


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "pence: Field required."),
        ({"pence": "many"}, "pence: Input should be a valid integer, unable to parse string as an integer."),
        ({"pence": 1, "extra": 2}, "extra: Extra inputs are not permitted."),
        ({"pence": 1, "rate": float("inf")}, "a number in them is larger than JSON can tell."),
        ({"pence": 1, "rate": "inf"}, "rate: Input should be a finite number."),
        ({"pence": 1, "more": [{"deep": float("nan")}]}, "a number in them is larger than JSON can tell."),
        ({"pence": 13}, "pence: Value error, 13 is unlucky."),
        ({"pence": 0}, "their validation failed (ZeroDivisionError: integer division or modulo by zero)."),
        ([1], "arguments must be a JSON object, not list."),
        (None, "arguments must be a JSON object, not NoneType."),
    ],
)
def test_arguments_that_do_not_fit_are_refused_naming_each_field(arguments: Any, said: str) -> None:
    @tool
    def pay(pence: Annotated[int, AfterValidator(lucky)], rate: float = 1.0, more: Any = None) -> None:
        """Pay."""

    with pytest.raises(InvalidArguments) as refused:
        pay.validate(arguments)
    assert str(refused.value) == said


def documented(**parameters: Any) -> Callable[..., None]:
    """A function with a docstring and parameters of these types; ``...`` leaves the type out."""
    namespace: dict[str, Any] = {}
    exec(f"def declared({', '.join(parameters)}):\n    'Declared.'", namespace)
    namespace["declared"].__annotations__ = {name: type_ for name, type_ in parameters.items() if type_ is not ...}
    return namespace["declared"]


def without_docstring(x: int) -> None: ...


def star(*values: int) -> None:
    """Star."""


def positional(x: int, /) -> None:
    """Positional."""


def unknown_name(x: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Unknown name."""


class NoSchema: ...


EFFECTS = "transactional, at_most_once, idempotent"


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (documented(), {"effect": "once"}, f"Tool 'declared': effect is 'once'; it is one of {EFFECTS}."),
        (documented(), {"effect": None}, f"Tool 'declared': effect is None; it is one of {EFFECTS}."),
        (
            documented(),
            {"approval": "sometimes"},
            "Tool 'declared': approval is 'sometimes'; it is one of never, always, once, or a function.",
        ),
        (documented(), {"timeout": 0}, "Tool 'declared': timeout is 0; it is a number of seconds above 0."),
        (documented(), {"timeout": -1}, "Tool 'declared': timeout is -1; it is a number of seconds above 0."),
        (documented(), {"timeout": True}, "Tool 'declared': timeout is True; it is a number of seconds above 0."),
        (
            documented(),
            {"timeout": float("nan")},
            "Tool 'declared': timeout is nan; it is a number of seconds above 0.",
        ),
        (
            documented(),
            {"name": "two words"},
            "Tool 'two words': a name is 1 to 64 letters, digits, '_' or '-'; pass name='…'.",
        ),
        (documented(), {"name": "x" * 65}, f"Tool '{'x' * 65}': a name is 1 to 64 letters"),
        (documented(), {"name": 3}, "Tool 3: a name is 1 to 64 letters"),
        (
            without_docstring,
            {},
            "Tool 'without_docstring' has no docstring; the model reads it to decide when to use the tool, so write "
            "one.",
        ),
        (documented(x=...), {}, "Tool 'declared': parameter 'x' has no type; annotate it."),
        (star, {}, "Tool 'star': parameter *values: 'int' cannot be described to a model; name each parameter."),
        (positional, {}, "Tool 'positional': parameter x: 'int' cannot be described to a model; name each parameter."),
        (
            unknown_name,
            {},
            "Tool 'unknown_name': its annotations name something that cannot be found (name 'Missing' is not "
            "defined); import it at the top of the module, not under TYPE_CHECKING.",
        ),
        (documented(x=NoSchema), {}, "Tool 'declared': its parameters have no JSON schema (Unable to generate"),
        (
            documented(x=Callable[[], int]),
            {},
            "Tool 'declared': its parameters have no JSON schema (Cannot generate a JsonSchema",
        ),
        (
            documented(a=TurnState, b=TurnState),
            {},
            "Tool 'declared' takes the TurnState twice; one parameter is enough.",
        ),
        (functools.partial(documented(x=int), 1), {}, "is not a function; put @tool above a def."),
        (NoSchema, {}, "NoSchema'> is not a function; put @tool above a def."),
    ],
)
def test_a_wrong_declaration_is_refused_with_a_sentence(function: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Tool(function, **options)
    assert said in str(refused.value)


def test_the_row_keeps_defaults_so_that_a_person_decides_on_what_would_run() -> None:
    @tool
    def refund(order: str, pence: int = 500) -> None:
        """Refund."""

    assert refund.validate({"order": "A1"})[1] == {"order": "A1", "pence": 500}


def test_a_mutable_default_is_not_shared_between_calls() -> None:
    @tool
    def tag(labels: list[str] = []) -> None:  # noqa: B006
        """Tag."""

    tag.validate({})[0]["labels"].append("kept")
    assert tag.validate({})[0] == {"labels": []}


def test_declaring_a_tool_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    tool(documented(schema=str, json=pydantic.Json, copy=bool))
    assert list(recwarn) == []
