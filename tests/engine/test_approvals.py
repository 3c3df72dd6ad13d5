"""When a person is asked before a call runs: the four policies, gates that fail, and what is asked only once."""

from __future__ import annotations

from typing import Any

import pytest

from agentturns import Agent, Denied, Tool, ToolCall, Turn, get_agent, tool
from agentturns.engine import ledger
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply
from tests.lost_workers import Died, expire_lease, run_until_death

pytestmark = pytest.mark.django_db(transaction=True)

runs: list[Any] = []


@pytest.fixture(autouse=True)
def no_runs() -> None:
    runs.clear()


def refund_tool(approval: Any) -> Tool:
    """A tool of three parameters under this policy."""

    @tool(effect="idempotent", approval=approval)
    def refund(order: str, pence: int, reason: str = "none") -> str:
        """Refund an order; the worker dies once it did so for "boom"."""
        runs.append((order, pence))
        if order == "boom" and runs.count((order, pence)) == 1:
            raise Died
        return f"refunded {order}"

    return refund


def asks(*arguments: dict[str, Any]) -> Any:
    return reply(tool_calls=[("refund", given) for given in arguments])


A = {"order": "A", "pence": 500}
B = {"order": "B", "pence": 5}


def start(approval: Any, *script: Any, name: str = "tester", **options: Any) -> Turn:
    model = ScriptedModel([*script, reply("done")])
    agent = Agent(name=name, model=model, instructions="…", tools=[refund_tool(approval)])
    return agent.start("go", **options)


def open_calls() -> list[dict[str, Any]]:
    return [call.arguments for call in ToolCall.objects.awaiting_decision()]


def approve_all() -> None:
    for call in ToolCall.objects.awaiting_decision():
        call.approve()


def test_never_asks_nobody() -> None:
    turn = run_turn(start("never", asks(A)).pk)
    assert (turn.status, runs) == ("completed", [("A", 500)])
    assert turn.tool_calls.get().approval == ""


def test_always_asks_for_every_call_again() -> None:
    turn = run_turn(start("always", asks(A), asks(A)).pk)
    for number in range(2):
        assert (turn.park_reason, len(runs)) == ("approval", number)
        assert turn.waiting_for == "A person must approve or decline the call of refund."
        approve_all()
        turn = run_turn(turn.pk)
    assert (turn.status, runs) == ("completed", [("A", 500)] * 2)


def test_once_asks_no_more_for_identical_arguments_of_the_session() -> None:
    turn = run_turn(start("once", asks(A), asks({"pence": 500, "order": "A"}), asks({**A, "reason": "none"})).pk)
    assert (turn.park_reason, runs) == ("approval", [])
    approve_all()
    turn = run_turn(turn.pk)
    assert (turn.status, runs) == ("completed", [("A", 500)] * 3)
    assert [call.approval for call in turn.tool_calls.order_by("pk")] == ["approved", "", ""]

    with get_agent("tester").override(model=ScriptedModel([asks(A), reply("done")])):
        assert run_turn(turn.session.send("again").pk).status == "completed"


def test_once_asks_again_for_another_amount() -> None:
    turn = run_turn(start("once", asks(A), asks({"order": "A", "pence": 500_000})).pk)
    approve_all()
    turn = run_turn(turn.pk)
    assert (turn.park_reason, open_calls()) == ("approval", [{"order": "A", "pence": 500_000, "reason": "none"}])
    assert runs == [("A", 500)]


@pytest.mark.parametrize("decide", [ToolCall.decline, lambda call: call.answer("Done by hand.")])
def test_once_asks_again_after_anything_but_an_approval(decide: Any) -> None:
    turn = run_turn(start("once", asks(A), asks(A)).pk)
    decide(ToolCall.objects.awaiting_decision().get())
    assert run_turn(turn.pk).park_reason == "approval"
    assert runs == []


def test_an_approval_in_one_session_counts_in_no_other() -> None:
    first = run_turn(start("once", asks(A)).pk)
    approve_all()
    run_turn(first.pk)
    agent = Agent(name="same tools", model=ScriptedModel([asks(A)]), instructions="…", tools=[refund_tool("once")])
    assert run_turn(agent.start("go").pk).park_reason == "approval"


def test_a_gate_gets_the_tool_the_fitted_arguments_and_the_state() -> None:
    seen: list[Any] = []

    def gate(request: Any) -> bool:
        seen.append((request.tool.name, request.arguments, request.state.tenant, request.state.turn_context))
        return request.arguments["pence"] > 100

    model_says = asks({"order": "B", "pence": "5"}, A)
    turn = run_turn(start(gate, model_says, tenant="acme", context={"vip": True}).pk)
    assert seen == [
        ("refund", {"order": "B", "pence": 5, "reason": "none"}, "acme", {"vip": True}),
        ("refund", {"order": "A", "pence": 500, "reason": "none"}, "acme", {"vip": True}),
    ]
    assert (turn.park_reason, runs) == ("approval", [("B", 5)])
    assert open_calls() == [{"order": "A", "pence": 500, "reason": "none"}]


def test_a_gate_may_deny_and_the_model_is_told_why() -> None:
    turn = run_turn(start(lambda request: Denied("not more than £2"), asks(A)).pk)
    call = turn.tool_calls.get()
    assert (turn.status, runs) == ("completed", [])
    assert (call.status, call.approval, call.output_text, call.note) == (
        "refused",
        "",
        "Not run: not more than £2",
        "not more than £2",
    )


def broken(request: Any) -> bool:
    raise KeyError("amount")


@pytest.mark.parametrize(
    ("gate", "why"),
    [
        (broken, "The approval rule of refund failed (KeyError: 'amount')."),
        (lambda request: None, "The approval rule of refund returned None, which is neither True nor False."),
        (lambda request: 1, "The approval rule of refund returned 1, which is neither True nor False."),
        (lambda request: "no", "The approval rule of refund returned 'no', which is neither True nor False."),
    ],
)
def test_a_gate_that_fails_parks_the_call_for_a_person_and_says_why(gate: Any, why: str) -> None:
    turn = run_turn(start(gate, asks(A)).pk)
    assert (turn.status, turn.park_reason, runs) == ("parked", "approval", [])
    assert ToolCall.objects.awaiting_decision().get().note == why
    assert turn.waiting_for == f"A person must approve or decline the call of refund ({why})."
    approve_all()
    assert run_turn(turn.pk).status == "completed"
    assert runs == [("A", 500)]


def test_a_gate_is_not_asked_about_arguments_that_do_not_fit() -> None:
    turn = run_turn(start(broken, asks({"order": "A", "pence": "plenty"})).pk)
    assert turn.status == "completed"
    assert turn.tool_calls.get().output_text.startswith("Not run: the arguments do not fit refund: pence: Input should")


def counting(answers: list[Any]) -> tuple[Any, list[str]]:
    """A gate that gives these answers in turn, and the orders it was asked about."""
    asked: list[str] = []

    def gate(request: Any) -> Any:
        asked.append(request.arguments["order"])
        return answers[len(asked) - 1]

    return gate, asked


def test_a_gate_is_asked_once_though_the_turn_parks_and_resumes() -> None:
    gate, asked = counting([True, False])
    turn = run_turn(start(gate, asks(A, B)).pk)
    assert (turn.park_reason, runs) == ("approval", [("B", 5)])
    approve_all()
    assert run_turn(turn.pk).status == "completed"
    assert asked == ["A", "B"]
    assert runs == [("B", 5), ("A", 500)]


def test_a_gate_that_let_a_call_run_is_not_asked_again_after_a_crash() -> None:
    gate, asked = counting([False])
    turn = run_until_death(start(gate, asks({"order": "boom", "pence": 1})))
    assert run_turn(turn.pk).status == "completed"
    assert asked == ["boom"]
    assert runs == [("boom", 1)] * 2


def test_what_a_gate_denied_is_not_run_after_a_crash_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, _ = counting([Denied("too much")] * 2)
    turn = start(gate, asks(A))
    settle = ledger.settle_call

    def die(*arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(ledger, "settle_call", settle)
        raise Died

    monkeypatch.setattr(ledger, "settle_call", die)
    with pytest.raises(Died):
        run_turn(turn.pk)
    turn = run_turn(expire_lease(turn).pk)
    assert runs == []
    assert (turn.status, turn.tool_calls.get().output_text) == ("completed", "Not run: too much")


def test_calls_that_wait_for_their_budget_are_asked_about_when_they_are_taken_up() -> None:
    gate, asked = counting([False, True])
    model = ScriptedModel([asks(B, A), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[refund_tool(gate)], limits={"max_tool_calls": 1})
    turn = run_turn(agent.start("go").pk)
    assert (turn.park_reason, asked, open_calls()) == ("max_tool_calls", ["B"], [])
    turn = run_turn(turn.raise_budget(max_tool_calls=2).pk)
    assert (turn.park_reason, asked) == ("approval", ["B", "A"])
