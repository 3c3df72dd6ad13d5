"""The public names and their signatures: what other people's code and tests call, pinned."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from importlib import import_module
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.dispatch import Signal

import agentturns
from agentturns import exceptions, signals
from tests.subprocesses import ROOT

NAMES = [
    "Agent",
    "AgentTurnsError",
    "ApprovalRequest",
    "BudgetChange",
    "ConfigurationError",
    "Conflict",
    "Denied",
    "Halt",
    "InvalidBudget",
    "LeaseLost",
    "Limits",
    "Message",
    "Notice",
    "Session",
    "Step",
    "Tool",
    "ToolCall",
    "ToolLimitExceeded",
    "Turn",
    "TurnState",
    "ask_person",
    "get_agent",
    "tool",
]


def test_the_exported_names_are_these() -> None:
    assert agentturns.__all__ == NAMES
    assert dir(agentturns) == NAMES
    for name in NAMES:
        assert getattr(agentturns, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'agentturns' has no attribute 'Agents'"):
        agentturns.Agents  # noqa: B018


HEAVY = ("openai", "anthropic", "genai_prices", "pydantic", "django_q", "django.db.models", "agentturns.models")


def loaded_after(statement: str) -> list[str]:
    """The heavy modules that a fresh process without settings has loaded after ``statement``."""
    script = f"{statement}\nimport sys\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env={}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_package_is_imported_without_settings_and_loads_nothing_heavy() -> None:
    assert loaded_after("import agentturns") == []


def test_agents_are_declared_before_the_app_registry_is_ready() -> None:
    declare = (
        "from agentturns import Agent, Halt, Limits, TurnState, tool\n"
        "@tool\n"
        "def look(what: str, state: TurnState) -> str:\n"
        "    'Look.'\n"
        "Agent(name='a', model='openai:gpt-5-mini', instructions='…', tools=[look], limits=Limits(max_cost='0.25'))"
    )
    assert (
        set(loaded_after(declare)) & {"openai", "anthropic", "genai_prices", "django_q", "agentturns.models"} == set()
    )


def shape(function: Callable[..., Any]) -> str:
    """The signature without its annotations and without self."""
    signature = inspect.signature(function)
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in signature.parameters.items()
        if name != "self"
    ]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


SIGNATURES = {
    "agentturns.definitions.agent.Agent": (
        "(name, model, instructions, tools=(), limits=None, tool_concurrency=None, queue_policy=None, "
        "max_reply_tokens=None)"
    ),
    "agentturns.definitions.agent.Agent.start": (
        "(input, *, tenant='', user=None, context=None, metadata=None, limits=None, key='')"
    ),
    "agentturns.definitions.agent.Agent.override": "(*, model=None, limits=None)",
    "agentturns.definitions.agent.get_agent": "(name)",
    "agentturns.definitions.tools.Tool": (
        "(function, *, effect='at_most_once', approval='never', timeout=None, halts=False, name=None)"
    ),
    "agentturns.definitions.tools.Denied": "(reason)",
    "agentturns.definitions.tools.Halt": "(answer)",
    "agentturns.definitions.tools.ApprovalRequest": "(tool, arguments, state)",
    "agentturns.models.session.Session.send": "(input, *, context=None, limits=None, key='')",
    "agentturns.models.turn.Turn.raise_budget": "(*, by=None, reason='', **caps)",
    "agentturns.models.turn.Turn.lower_budget": "(*, by=None, reason='', **caps)",
    "agentturns.models.turn.Turn.cancel": "(*, by=None, reason='')",
    "agentturns.models.turn.Turn.retry": "(*, by=None, reason='')",
    "agentturns.models.turn.Turn.spent": "(cap)",
    "agentturns.models.turn.Turn.limit": "(cap)",
    "agentturns.models.tool_call.ToolCall.approve": "(*, by=None, note='')",
    "agentturns.models.tool_call.ToolCall.decline": "(*, by=None, reason='')",
    "agentturns.models.tool_call.ToolCall.answer": "(text, *, by=None)",
    "agentturns.models.tool_call.ToolCall.rerun": "(*, by=None)",
    "agentturns.models.tool_call.ToolCall.confirm": "(result, *, by=None)",
    "agentturns.models.turn_queryset.TurnQuerySet.parked": "(reason=None)",
    "agentturns.models.turn_queryset.TurnQuerySet.for_tenant": "(tenant)",
    "agentturns.models.turn_queryset.TurnQuerySet.spend": "()",
    "agentturns.models.turn_queryset.TurnQuerySet.spend_by": "(group, *more)",
    "agentturns.money.budget.exceeded_reason": "(turn, limits=None, *, now=None)",
    "agentturns.money.budget.limit_for": "(turn, cap)",
    "agentturns.engine.runner.run_turn": "(turn_id)",
    "agentturns.testing.ScriptedModel": "(script, name=None)",
    "agentturns.testing.ScriptedModel.assert_used": "()",
}


def find(path: str) -> Any:
    """What a dotted path names, attributes of classes included."""
    module, *attributes = path.rsplit(".", 1)
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError:
        found = find(module)
    for attribute in attributes:
        found = getattr(found, attribute)
    return found


@pytest.mark.parametrize(("path", "signature"), SIGNATURES.items(), ids=[*SIGNATURES])
def test_a_public_signature_is_as_the_contract_says(path: str, signature: str) -> None:
    assert shape(find(path)) == signature


def test_a_scripted_reply_takes_what_the_contract_names_first() -> None:
    parameters = list(inspect.signature(find("agentturns.testing.reply")).parameters.values())
    assert [(parameter.name, parameter.default) for parameter in parameters[:6]] == [
        ("text", ""),
        ("tool_calls", ()),
        ("input_tokens", 0),
        ("output_tokens", 0),
        ("cost", Decimal(0)),
        ("delay", 0),
    ]
    assert all(parameter.default is not parameter.empty for parameter in parameters[6:])


READABLE = {
    "Turn": ["status", "park_reason", "answer", "budget_parked", "waiting_for"],
    "TurnState": [
        *("turn", "session", "profile", "message", "tenant", "user", "turn_context", "resumed", "usage", "baseline"),
        *("queue_policy", "capability_names", "skip_side_effects", "requires_approval", "approval_coordinator"),
        *("inbox", "tool_gate", "requested_tool_concurrency", "tool_concurrency", "halt_reason", "halt_response"),
        *("current_tool_call", "current_tool_name"),
    ],
    "ApprovalRequest": ["tool", "arguments", "state"],
}


@pytest.mark.parametrize("name", READABLE)
def test_what_the_contract_reads_is_there(name: str) -> None:
    known = dir(getattr(agentturns, name)) + list(inspect.signature(getattr(agentturns, name)).parameters)
    assert [attribute for attribute in READABLE[name] if attribute not in known] == []


def test_the_querysets_have_their_words() -> None:
    words = ("queued", "running", "budget_parked", "finished", "runnable", "needs_attention")
    for word in words:
        assert shape(getattr(agentturns.Turn.objects.all(), word)) == "()"
        assert callable(getattr(agentturns.Turn.objects, word))
    assert callable(agentturns.ToolCall.objects.awaiting_decision)


def test_the_rows_are_reached_by_their_names() -> None:
    reverse = {
        (relation.model.__name__, relation.get_accessor_name())
        for model in (agentturns.Session, agentturns.Turn, agentturns.Step)
        for relation in model._meta.related_objects
    }
    assert reverse >= {
        ("Session", "turns"),
        ("Turn", "steps"),
        ("Turn", "tool_calls"),
        ("Step", "tool_calls"),
        ("Turn", "notices"),
        ("Turn", "budget_changes"),
    }


def test_every_error_is_an_agentturns_error_and_carries_its_facts() -> None:
    errors = {
        value
        for value in vars(exceptions).values()
        if isinstance(value, type) and value.__module__ == exceptions.__name__
    }
    assert {error.__name__ for error in errors} == {
        "AgentTurnsError",
        "ConfigurationError",
        "Conflict",
        "InvalidBudget",
        "LeaseLost",
        "ToolLimitExceeded",
    }
    assert all(issubclass(error, exceptions.AgentTurnsError) for error in errors)
    assert issubclass(exceptions.InvalidBudget, ValidationError)
    conflict = exceptions.Conflict("…")
    assert (conflict.status, conflict.by, conflict.at) == ("", "", None)
    refused = exceptions.InvalidBudget("…")
    assert (refused.cap, refused.value, refused.spent, refused.limit) == ("", None, None, None)


def test_the_signals_are_these() -> None:
    assert {name for name, value in vars(signals).items() if isinstance(value, Signal)} == {
        "turn_started",
        "turn_parked",
        "turn_resumed",
        "turn_finished",
        "step_finished",
        "tool_budget_warned",
        "budget_raised",
        "tool_call_decided",
    }


def test_the_decorator_takes_its_options_by_name_only() -> None:
    with pytest.raises(TypeError):
        agentturns.tool("transactional", "always")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="efect"):
        agentturns.tool(efect="transactional")(len)  # type: ignore[call-overload]
