"""Tools: plain functions with a schema, an effect and an approval policy."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, overload

import pydantic

from agentturns.definitions.state import TurnState
from agentturns.exceptions import ConfigurationError

EFFECTS = ("transactional", "at_most_once", "idempotent")
APPROVALS = ("never", "always", "once")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


@dataclass(frozen=True, slots=True)
class Halt:
    """Returned by a tool to end the turn at once, with ``answer`` as the turn's answer."""

    answer: str


@dataclass(frozen=True, slots=True)
class Denied:
    """Returned by an approval callable to refuse a call; the model is told ``reason``."""

    reason: str


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What an approval callable is given. ``arguments`` are validated and as JSON."""

    tool: Tool
    arguments: dict[str, Any]
    state: TurnState


Approval = Literal["never", "always", "once"] | Callable[[ApprovalRequest], "bool | Denied"]


class InvalidArguments(ValueError):
    """The model's arguments do not fit the tool's signature; the message names each field and why."""


class Tool:
    """A function that a model may ask for. Made by :func:`tool`; calling it calls the function.

    ``parameters`` is the JSON schema the model sees, made from the signature; ``description`` is the docstring.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        effect: str = "at_most_once",
        approval: Approval = "never",
        timeout: float | None = None,
        halts: bool = False,
        name: str | None = None,
    ) -> None:
        if not inspect.isroutine(function):
            raise ConfigurationError(f"{function!r} is not a function; put @tool above a def.")
        self.function = function
        self.name = name or function.__name__
        self.effect = effect
        self.approval = approval
        self.timeout = timeout
        self.halts = halts
        self.description = inspect.cleandoc(function.__doc__ or "").strip()
        self.is_async = inspect.iscoroutinefunction(function)
        self._check_declaration()
        self.state_parameter, self._parameter_of, self._arguments = _arguments_model(function, self.name)
        self.parameters: dict[str, Any] = _schema(self._arguments)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name} effect={self.effect}>"

    @property
    def is_question(self) -> bool:
        """Whether a person answers a call of this tool instead of its being run."""
        return self is ask_person

    @property
    def can_ask(self) -> bool:
        """Whether a call of this tool may wait for a person."""
        return self.approval != "never"

    def definition(self) -> dict[str, Any]:
        """What the model is told of this tool."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}

    def validate(self, arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments as Python values for the call, and as plain JSON for the row.

        Raises :class:`InvalidArguments`.
        """
        if not isinstance(arguments, dict):
            raise InvalidArguments(f"arguments must be a JSON object, not {type(arguments).__name__}.")
        try:
            json.dumps(arguments, allow_nan=False)
        except ValueError:
            # Text such as 1e999 reads as infinity, which a parameter of any type would take and no row could show.
            raise InvalidArguments("a number in them is larger than JSON can tell.") from None
        try:
            fitted = self._arguments.model_validate(arguments)
        except pydantic.ValidationError as error:
            problems = (f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in error.errors())
            raise InvalidArguments("; ".join(problems) + ".") from None
        except Exception as error:
            # A validator that the tool's author wrote into an annotation may raise anything.
            raise InvalidArguments(f"their validation failed ({type(error).__name__}: {error}).") from error
        values = {name: getattr(fitted, field) for field, name in self._parameter_of.items()}
        return values, fitted.model_dump(mode="json", by_alias=True)

    def _check_declaration(self) -> None:
        where = f"Tool {self.name!r}"
        if not isinstance(self.name, str) or not _NAME.match(self.name):
            raise ConfigurationError(f"{where}: a name is 1 to 64 letters, digits, '_' or '-'; pass name='…'.")
        if self.effect not in EFFECTS:
            raise ConfigurationError(f"{where}: effect is {self.effect!r}; it is one of {', '.join(EFFECTS)}.")
        if not callable(self.approval) and self.approval not in APPROVALS:
            raise ConfigurationError(
                f"{where}: approval is {self.approval!r}; it is one of {', '.join(APPROVALS)}, or a function."
            )
        if self.timeout is not None and (
            isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float) or not self.timeout > 0
        ):
            raise ConfigurationError(f"{where}: timeout is {self.timeout!r}; it is a number of seconds above 0.")
        if not self.description:
            raise ConfigurationError(
                f"{where} has no docstring; the model reads it to decide when to use the tool, so write one."
            )


def _arguments_model(
    function: Callable[..., Any], name: str
) -> tuple[str | None, dict[str, str], type[pydantic.BaseModel]]:
    """The parameter that takes the TurnState, if any; the others by the field that holds each; a model of these."""
    state_parameter: str | None = None
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    hints = _hints(function, name)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigurationError(
                f"Tool {name!r}: parameter {parameter} cannot be described to a model; name each parameter."
            )
        if parameter.name not in hints:
            raise ConfigurationError(f"Tool {name!r}: parameter {parameter.name!r} has no type; annotate it.")
        if _takes_state(hints[parameter.name]):
            if state_parameter is not None:
                raise ConfigurationError(f"Tool {name!r} takes the TurnState twice; one parameter is enough.")
            state_parameter = parameter.name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        # Fields of our own naming: a parameter may be called what pydantic reserves, such as "schema" or "_id".
        field = f"argument_{len(names)}"
        names[field] = parameter.name
        fields[field] = (hints[parameter.name], default)
    config = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False, alias_generator=names.__getitem__)
    try:
        model = pydantic.create_model(f"{name}_arguments", __config__=config, **fields)
        model.model_json_schema()
    except (pydantic.errors.PydanticUserError, NameError, TypeError) as error:
        first = str(error).splitlines()[0]
        raise ConfigurationError(f"Tool {name!r}: its parameters have no JSON schema ({first}).") from None
    return state_parameter, names, model


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ConfigurationError(
            f"Tool {name!r}: its annotations name something that cannot be found ({error}); import it at the top of "
            "the module, not under TYPE_CHECKING."
        ) from None


def _takes_state(hint: Any) -> bool:
    """Whether the annotation names the TurnState, alone or in a union: a model must never fill it in."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType, typing.Annotated):
        return any(_takes_state(part) for part in typing.get_args(hint))
    return hint is TurnState


def _schema(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    schema.pop("title", None)
    for described in schema.get("properties", {}).values():
        described.pop("title", None)
    schema.setdefault("properties", {})
    return schema


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    effect: Literal["transactional", "at_most_once", "idempotent"] = "at_most_once",
    approval: Approval = "never",
    timeout: float | None = None,
    halts: bool = False,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a function as a tool: ``@tool(effect="transactional")``.

    ``effect`` says what a crash may do to it: ``transactional`` (writes only through Django on
    ``AGENTTURNS["DATABASE"]``; done exactly once), ``at_most_once`` (the default: never run again unless a person
    says so), ``idempotent`` (safe to run again). ``approval``: ``never``, ``always``, ``once`` (per identical
    arguments per session), or a callable given an :class:`ApprovalRequest` that returns True (ask a person), False
    or :class:`Denied`. ``timeout`` is in seconds. ``halts=True`` ends the turn after a successful call.

    Raises ``ConfigurationError`` for a missing docstring, an untyped parameter or an unknown option value.
    """
    if function is not None:
        return Tool(function)
    return lambda declared: Tool(declared, **options)


@tool(effect="idempotent", approval="always")
def ask_person(question: str) -> str:
    """Ask a person and wait for the answer. Use it when only a person can know or decide something you need."""
    raise NotImplementedError("A person answers this call; it is never run.")
