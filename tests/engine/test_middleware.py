"""What a project puts around every turn, and what a turn's tools see of it."""

from __future__ import annotations

from typing import Any

import pytest

from agentturns import Agent, ApprovalRequest, Denied, Limits, TurnState, tool
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply

pytestmark = pytest.mark.django_db(transaction=True)

passed: list[str] = []


@pytest.fixture(autouse=True)
def nothing_passed() -> None:
    passed.clear()


class Around:
    """Notes its name on the way in and out."""

    name = ""

    def __init__(self, following: Any) -> None:
        self.following = following

    def __call__(self, state: TurnState) -> None:
        passed.append(f"{self.name} in")
        self.following(state)
        passed.append(f"{self.name} out")


class Outer(Around):
    name = "outer"


class Inner(Around):
    name = "inner"


def rewrite(following: Any) -> Any:
    def call(state: TurnState) -> None:
        passed.append("rewrite")
        state.message = f"{state.message} (in {state.tenant})"
        state.turn_context["plan"] = "gold"
        following(state)

    return call


def refuse(following: Any) -> Any:
    def call(state: TurnState) -> None:
        state.halt_reason = "Closed today."

    return call


def answer(following: Any) -> Any:
    def call(state: TurnState) -> None:
        state.halt_response = "We are closed today."

    return call


def dry_run(following: Any) -> Any:
    def call(state: TurnState) -> None:
        state.skip_side_effects = True

    return call


def cautious(following: Any) -> Any:
    def call(state: TurnState) -> None:
        state.requires_approval = True

    return call


def coordinate(request: ApprovalRequest) -> bool | Denied | None:
    return Denied("never on this site") if request.tool.name == "pay" else None


def use(settings: Any, *names: str, **more: Any) -> None:
    settings.AGENTTURNS = {"MIDDLEWARE": [f"{__name__}.{name}" for name in names], **more}


seen: dict[str, Any] = {}


@tool(effect="idempotent")
def look(state: TurnState) -> str:
    """Look."""
    seen.update(
        context=state.turn_context,
        message=state.message,
        names=state.capability_names,
        resumed=state.resumed,
        profile=state.profile,
        baseline=state.baseline,
        policy=state.queue_policy,
        cost=state.usage["cost"],
    )
    return "seen"


@tool
def pay() -> str:
    """Pay."""
    passed.append("paid")
    return "paid"


def agent(*script: Any, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(list(script))
    return Agent(name="tester", model=model, instructions="…", tools=[look, pay], **options), model


def calls(name: str, **options: Any) -> Any:
    return reply(tool_calls=[(name, {})], **options)


def test_the_first_middleware_is_outermost(settings: Any) -> None:
    use(settings, "Outer", "Inner")
    tester, _ = agent(reply("done"))
    run_turn(tester.start("go").pk)
    assert passed == ["outer in", "inner in", "inner out", "outer out"]


def test_a_changed_message_and_context_are_stored_and_middleware_does_not_run_again_on_a_resume(settings: Any) -> None:
    use(settings, "rewrite")
    tester, model = agent(calls("look", cost="0.3"), calls("look"), reply("done"), limits=Limits(max_cost="0.2"))
    turn = run_turn(tester.start("hello", tenant="acme", context={"order": 7}, metadata={"name": "Ann"}).pk)
    turn = run_turn(turn.raise_budget(max_cost=1).pk)
    assert (turn.status, turn.input, turn.message) == ("completed", "hello", "hello (in acme)")
    assert [request.messages[0]["content"] for request in model.requests] == ["hello (in acme)"] * 3
    assert passed == ["rewrite"]
    assert seen["context"] == turn.context == {"order": 7, "plan": "gold"}
    assert (seen["message"], seen["resumed"], seen["profile"]) == ("hello (in acme)", True, {"name": "Ann"})
    assert (seen["names"], seen["baseline"], seen["policy"]) == (("look", "pay"), 0, "followup")
    assert str(seen["cost"]) == "0.30"


def test_a_halt_reason_fails_the_turn_without_a_model_call(settings: Any) -> None:
    use(settings, "refuse", "rewrite")
    tester, model = agent(reply("done"))
    turn = run_turn(tester.start("go").pk)
    assert (turn.status, turn.error_code, turn.error_message) == ("failed", "halted", "Closed today.")
    assert (model.requests, passed) == ([], [])


def test_a_halt_response_is_the_answer_without_a_model_call(settings: Any) -> None:
    use(settings, "answer")
    tester, model = agent(reply("done"))
    turn = run_turn(tester.start("go").pk)
    assert (turn.status, turn.answer, model.requests) == ("completed", "We are closed today.", [])


def test_without_side_effects_only_idempotent_tools_run(settings: Any) -> None:
    use(settings, "dry_run")
    tester, _ = agent(reply(tool_calls=[("look", {}), ("pay", {})]), reply("done"))
    turn = run_turn(tester.start("go").pk)
    assert [(call.name, call.status) for call in turn.tool_calls.order_by("position")] == [
        ("look", "completed"),
        ("pay", "refused"),
    ]
    assert passed == []


def test_middleware_can_want_a_person_asked_before_each_effect(settings: Any) -> None:
    use(settings, "cautious")
    tester, _ = agent(reply(tool_calls=[("look", {}), ("pay", {})]), reply("done"))
    turn = run_turn(tester.start("go").pk)
    assert (turn.park_reason, passed) == ("approval", [])
    settings.AGENTTURNS = {}
    turn.tool_calls.get(name="pay").approve()
    assert run_turn(turn.pk).status == "completed"
    assert passed == ["paid"]


def test_the_coordinator_is_asked_before_a_tools_own_rule(settings: Any) -> None:
    use(settings, APPROVAL_COORDINATOR=f"{__name__}.coordinate")
    tester, _ = agent(reply(tool_calls=[("look", {}), ("pay", {})]), reply("done"))
    turn = run_turn(tester.start("go").pk)
    assert turn.status == "completed"
    assert [call.output_text for call in turn.tool_calls.order_by("position")] == [
        "seen",
        "Not run: never on this site",
    ]


def test_middleware_that_cannot_be_imported_parks_with_its_path(settings: Any) -> None:
    use(settings, "missing")
    tester, _ = agent(reply("done"))
    turn = run_turn(tester.start("go").pk)
    assert (turn.status, turn.error_code) == ("parked", "configuration")
    assert "AGENTTURNS['MIDDLEWARE'] names" in turn.waiting_for
    settings.AGENTTURNS = {}
    assert run_turn(turn.retry().pk).status == "completed"


def test_the_edge_limiter_counts_turns_of_a_session_and_never_a_resumed_one(settings: Any) -> None:
    settings.AGENTTURNS = {
        "MIDDLEWARE": ["agentturns.engine.middleware.EdgeLimiter"],
        "EDGE_LIMITS": {"turns_per_session": (2, 3600)},
    }
    tester, _ = agent(calls("look", cost="0.3"), reply("one"), reply("two"), limits=Limits(max_cost="0.2"))
    first = run_turn(tester.start("go").pk)
    first = run_turn(first.raise_budget(max_cost=1).pk)
    assert first.status == "completed"
    assert run_turn(first.session.send("again").pk).status == "completed"
    third = run_turn(first.session.send("and again").pk)
    assert (third.status, third.error_code) == ("failed", "halted")
    assert third.error_message == "This session may begin 2 turns in 3,600 seconds; try again later."


def test_the_edge_limiter_counts_the_tokens_of_an_agent(settings: Any) -> None:
    settings.AGENTTURNS = {
        "MIDDLEWARE": ["agentturns.engine.middleware.EdgeLimiter"],
        "EDGE_LIMITS": {"tokens_per_agent": (100, 3600)},
    }
    tester, _ = agent(reply("one", input_tokens=90, output_tokens=20), reply("two"))
    assert run_turn(tester.start("go").pk).status == "completed"
    second = run_turn(tester.start("go").pk)
    assert second.error_message == "The agent tester used 110 of 100 tokens in 3,600 seconds; try again later."
