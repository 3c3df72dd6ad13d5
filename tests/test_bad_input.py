"""Bad input, one table: where the turn ends, under which reason, code or exception, and the sentence people read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentturns import Agent, ConfigurationError, Conflict, InvalidBudget, Limits, Turn, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply
from tests.wire_server import WireServer, answer, running_wire_server

pytestmark = pytest.mark.django_db(transaction=True)

REPLACED = "\N{REPLACEMENT CHARACTER}"


@tool(effect="idempotent")
def find_order(number: int, hints: dict[str, Any] | None = None) -> str:
    """Find an order."""
    if number == 404:
        raise LookupError("no order 404")
    return f"order {number}"


@tool(effect="idempotent", approval="always")
def refund(number: int) -> str:
    """Refund an order."""
    return "refunded"


class Scene:
    """What the cases act on. Each case gets its own."""

    def __init__(self, wire: WireServer, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wire = wire
        self._settings = settings
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
            monkeypatch.delenv(name, raising=False)

    def provider(self, **options: Any) -> None:
        """An alias "shop" of the OpenAI provider."""
        self.configure(PROVIDERS={"shop": {"BACKEND": "agentturns.providers.openai.OpenAI", "OPTIONS": options}})

    def configure(self, **changed: Any) -> None:
        self._settings.AGENTTURNS = {**self._settings.AGENTTURNS, **changed}

    def agent(self, model: Any = None, **options: Any) -> Agent:
        model = model or ScriptedModel([reply("done")])
        return Agent(name="shopkeeper", model=model, instructions="…", tools=[find_order, refund], **options)

    def run(self, *script: Any, model: Any = None, **limits: Any) -> Turn:
        """A turn run until it rests."""
        scripted = model or ScriptedModel([*script, reply("done")])
        return run_turn(self.agent(scripted, limits=Limits(**limits)).start("go").pk)

    def asked(self, name: str, arguments: Any) -> Turn:
        """A turn whose model asks for this call and then answers."""
        return self.run(reply(tool_calls=[(name, arguments)]))


def unknown_alias_at_start(scene: Scene) -> Turn:
    return scene.agent("shpo:gpt-5-mini").start("go")


def alias_gone_at_run(scene: Scene) -> Turn:
    scene.provider(api_key="a key")
    turn = scene.agent("shop:gpt-5-mini").start("go")
    scene.configure(PROVIDERS={})
    return run_turn(turn.pk)


def missing_key(scene: Scene) -> Turn:
    scene.provider()
    return scene.run(model="shop:gpt-5-mini")


def unreachable(scene: Scene) -> Turn:
    scene.provider(api_key="a key", base_url="http://127.0.0.1:9/v1")
    return scene.run(model="shop:gpt-5-mini")


def tried_again(turn: Turn) -> Turn:
    """The turn after another attempt, its back-off over."""
    Turn.objects.filter(pk=turn.pk).update(run_after=None)
    return run_turn(turn.pk)


def unreachable_to_the_last(scene: Scene) -> Turn:
    scene.configure(PROVIDER_ATTEMPTS=2)
    return tried_again(unreachable(scene))


def reply_not_json(scene: Scene) -> Turn:
    scene.wire.script(answer("It works!", headers={"Content-Type": "text/plain"}))
    scene.provider(api_key="a key", base_url=f"{scene.wire.url}/v1")
    return scene.run(model="shop:gpt-5-mini")


def reply_not_json_to_the_last(scene: Scene) -> Turn:
    scene.configure(PROVIDER_ATTEMPTS=2)
    return tried_again(reply_not_json(scene))


def reply_is_a_web_page(scene: Scene) -> Turn:
    scene.wire.script(answer("<!doctype html><html><title>Welcome</title></html>"))
    scene.configure(PROVIDER_ATTEMPTS=2)
    scene.provider(api_key="a key", base_url=f"{scene.wire.url}/v1")
    return tried_again(scene.run(model="shop:gpt-5-mini"))


def raise_below_spent(scene: Scene) -> Turn:
    turn = scene.run(reply(tool_calls=[("find_order", {"number": 1})], cost="0.30"), max_cost=Decimal("0.25"))
    return turn.raise_budget(max_cost="0.28")


def raise_not_parked(scene: Scene) -> Turn:
    return scene.run().raise_budget(max_cost=1)


def second_decision(scene: Scene) -> Turn:
    turn = scene.asked("refund", {"number": 1})
    boss = User.objects.create_superuser("ann")
    call = turn.tool_calls.get().approve(by=boss)
    call.decline(by=boss)
    return turn


@dataclass(frozen=True)
class Case:
    """One row. ``status`` is the turn's, ``why`` its park reason, error code or the exception, joined by a slash.

    ``sentence`` is the exception's, the turn's ``waiting_for``, or what the model reads as the call's result;
    "…" stands for what differs from run to run.
    """

    what: str
    act: Callable[[Scene], Turn]
    status: str
    why: str
    sentence: str


ALIASES = "anthropic, openai, scripted"
KEY = (
    "The provider 'shop' has no API key: set the environment variable OPENAI_API_KEY, or OPTIONS['api_key'] of "
    "AGENTTURNS['PROVIDERS']['shop'] (any text for a server that needs none). Then retry the turn."
)

CASES = [
    Case(
        "an unknown provider alias, at start",
        unknown_alias_at_start,
        "",
        "ConfigurationError",
        f"Agent 'shopkeeper' uses the provider alias 'shpo', but AGENTTURNS['PROVIDERS'] has {ALIASES}; add it there "
        "or correct the model 'shpo:gpt-5-mini'.",
    ),
    Case(
        "a provider alias that is gone when the turn runs",
        alias_gone_at_run,
        "parked",
        "provider_error/configuration",
        f"There is no model provider with the alias 'shop'; the aliases are {ALIASES}. Retry once that is mended.",
    ),
    Case(
        "a missing API key",
        missing_key,
        "parked",
        "provider_error/missing_key",
        KEY,
    ),
    Case(
        "a provider that cannot be reached",
        unreachable,
        "queued",
        "/unreachable",
        "Tries again in 1 second (failure 1). The provider 'shop' cannot be reached: …",
    ),
    Case(
        "a provider that cannot be reached, after the last attempt",
        unreachable_to_the_last,
        "parked",
        "provider_error/unreachable",
        "The provider 'shop' cannot be reached: … 2 attempts failed. Retry once that is mended.",
    ),
    Case(
        "a reply that is not JSON",
        reply_not_json,
        "queued",
        "/invalid_json",
        "Tries again in 1 second (failure 1). The provider 'shop' answered with something that is not JSON.",
    ),
    Case(
        "a reply that is not JSON, after the last attempt",
        reply_not_json_to_the_last,
        "parked",
        "provider_error/invalid_json",
        "The provider 'shop' answered with something that is not JSON. 2 attempts failed. Retry once that is mended.",
    ),
    Case(
        "a web page instead of a reply, after the last attempt",
        reply_is_a_web_page,
        "parked",
        "provider_error/html_page",
        "The provider 'shop' answered with a web page titled “Welcome” instead of JSON; check base_url. 2 attempts "
        "failed. Retry once that is mended.",
    ),
    Case(
        "a tool the agent does not have",
        lambda scene: scene.asked("lookup", {}),
        "completed",
        "refused",
        "Not run: there is no tool named 'lookup'. The tools are: find_order, refund.",
    ),
    Case(
        "arguments that do not fit",
        lambda scene: scene.asked("find_order", {"number": "seven", "colour": "red"}),
        "completed",
        "refused",
        "Not run: the arguments do not fit find_order: number: Input should be a valid integer, unable to parse string "
        "as an integer; colour: Extra inputs are not permitted.",
    ),
    Case(
        "arguments that are not an object",
        lambda scene: scene.asked("find_order", "[1]"),
        "completed",
        "refused",
        "Not run: the arguments do not fit find_order: arguments must be a JSON object, not list.",
    ),
    Case(
        "arguments that are not JSON",
        lambda scene: scene.asked("find_order", '{"number": 1'),
        "completed",
        "refused",
        "Not run: the arguments are not valid JSON (Expecting ',' delimiter: line 1 column 13 (char 12)).",
    ),
    Case(
        "arguments with a number that JSON cannot hold",
        lambda scene: scene.asked("find_order", '{"number": 1, "hints": {"weight": 1e999}}'),
        "completed",
        "refused",
        "Not run: the arguments do not fit find_order: a number in them is larger than JSON can tell.",
    ),
    Case(
        "a tool that raises",
        lambda scene: scene.asked("find_order", {"number": 404}),
        "completed",
        "failed",
        "Error: LookupError: no order 404",
    ),
    Case(
        "a raise below what is spent",
        raise_below_spent,
        "parked",
        "InvalidBudget",
        "max_cost=$0.28 is not above what stands (spent $0.30, limit $0.25); give a value above $0.30.",
    ),
    Case(
        "a raise on a turn that is not parked",
        raise_not_parked,
        "completed",
        "Conflict",
        "Turn … is completed and is not waiting for a budget, so there is nothing to raise.",
    ),
    Case(
        "a second decision on a call",
        second_decision,
        "queued",
        "Conflict",
        "The call of refund was already approved by ann at …; nothing was changed.",
    ),
    Case(
        'start("")',
        lambda scene: scene.agent().start(""),
        "",
        "ValueError",
        "input is empty; give the agent something to answer.",
    ),
    Case(
        "start with blanks alone",
        lambda scene: scene.agent().start(" \n"),
        "",
        "ValueError",
        "input is empty; give the agent something to answer.",
    ),
    Case(
        "an input that is not text",
        lambda scene: scene.agent().start(None),  # type: ignore[arg-type]
        "",
        "TypeError",
        "input is a NoneType, but a turn starts from text.",
    ),
    Case(
        "an input over MAX_INPUT_BYTES",
        lambda scene: scene.agent().start("x" * 1_000_001),
        "",
        "ValueError",
        "input is 1,000,001 bytes, above AGENTTURNS['MAX_INPUT_BYTES'] = 1,000,000; shorten it, or give the agent a "
        "tool that reads the rest.",
    ),
    Case(
        "a context that is not JSON",
        lambda scene: scene.agent().start("go", context={"since": datetime(2026, 1, 1)}),
        "",
        "TypeError",
        "context['since'] is of type datetime, which is not JSON; pass text, numbers, booleans, None, lists or dicts.",
    ),
    Case(
        "a context with NaN",
        lambda scene: scene.agent().start("go", context={"rate": float("nan")}),
        "",
        "ValueError",
        "context['rate'] is nan, which JSON cannot hold; use None or a string instead.",
    ),
]

EXCEPTIONS = (ConfigurationError, Conflict, InvalidBudget, ValueError, TypeError)


@pytest.fixture
def scene(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with running_wire_server() as wire:
        yield Scene(wire, settings, monkeypatch)


def same(sentence: str, found: str) -> bool:
    """Whether ``found`` is the sentence, with anything where it has "…"."""
    first, *others = sentence.split("…")
    position = len(first)
    if not found.startswith(first):
        return False
    for part in others:
        position = found.find(part, position) + len(part)
        if position < len(part):
            return False
    return position == len(found) or sentence.endswith("…")


@pytest.mark.parametrize("case", CASES, ids=[case.what for case in CASES])
def test_bad_input_has_one_known_end_and_one_sentence(case: Case, scene: Scene) -> None:
    try:
        turn = case.act(scene)
    except EXCEPTIONS as error:
        found = Turn.objects.first()
        assert (found.status if found else "", type(error).__name__) == (case.status, case.why)
        assert same(case.sentence, str(error)), str(error)
        return
    call = turn.tool_calls.first()
    why = call.status if call else f"{turn.park_reason}/{turn.error_code}"
    told = call.output_text if call else turn.waiting_for
    assert (turn.status, why) == (case.status, case.why)
    assert same(case.sentence, told), told
    if call:
        assert turn.answer == "done"


def test_nul_and_lone_surrogates_become_the_replacement_character_wherever_text_comes_in(scene: Scene) -> None:
    dirty, clean = "a\x00b\ud83dc", f"a{REPLACED}b{REPLACED}c"

    @tool(effect="idempotent")
    def echo(text: str) -> dict[str, str]:
        """Echo."""
        return {dirty: text + dirty}

    model = ScriptedModel([reply(tool_calls=[("echo", {"text": dirty})]), reply(dirty)])
    agent = Agent(name="echo", model=model, instructions=dirty, tools=[echo])
    turn = agent.start(dirty, tenant=dirty, context={dirty: [dirty]}, metadata={"x": dirty}, key=dirty)
    assert (turn.input, turn.tenant, turn.key) == (clean, clean, clean)
    assert agent.start("again", tenant=dirty, key=dirty) == turn
    turn = run_turn(turn.pk)
    call = turn.tool_calls.get()
    assert (turn.status, turn.answer, turn.instructions) == ("completed", clean, clean)
    assert (turn.context, turn.session.metadata) == ({clean: [clean]}, {"x": clean})
    assert (call.arguments, call.result) == ({"text": clean}, {clean: clean + clean})
    assert dirty not in str([request.messages for request in model.requests])


def test_refused_input_leaves_no_row_behind(scene: Scene) -> None:
    with pytest.raises(ValueError, match="input is empty"):
        scene.agent().start("")
    assert Turn.objects.count() == 0
