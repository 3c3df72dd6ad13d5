"""The desk at work with its scripted model: what people ask, and where the turn comes to rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest
from django.core.mail import EmailMessage

from agentturns import Limits, ToolCall, Turn
from project.desk import script
from project.desk.agents import SCRIPT, desk, model_for
from project.desk.demo.orders import new_order
from project.desk.models import Order, Refund

pytestmark = pytest.mark.django_db
RunTurns = Callable[[], list[Turn]]


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(script, "THINKING_SECONDS", 0)
    with desk.override(model=SCRIPT):
        yield


@pytest.fixture
def order() -> Order:
    return new_order(1800)


def ask(text: str, run_turns: RunTurns, *, max_cost: str = "0.50") -> Turn:
    desk.start(text, limits=Limits(max_cost=max_cost))
    (turn,) = run_turns()
    return turn


def names_of_calls(turn: Turn) -> list[str]:
    return list(ToolCall.objects.filter(turn=turn).order_by("id").values_list("name", flat=True))


def test_its_second_step_passes_its_own_cost_limit(order: Order, run_turns: RunTurns) -> None:
    desk.start(f"Order {order.number} came broken. Please refund all of it.")
    (turn,) = run_turns()
    assert (turn.status, turn.park_reason, turn.step_count) == ("parked", "max_cost", 2)
    assert (turn.spent("max_cost"), turn.limit("max_cost")) == (Decimal("0.06"), Decimal("0.05"))


def test_after_a_raise_it_goes_on_where_it_stopped(
    order: Order, run_turns: RunTurns, mailoutbox: list[EmailMessage]
) -> None:
    turn = desk.start(f"Order {order.number} came broken. Please refund all of it.")
    run_turns()
    turn.raise_budget(max_cost="0.20")
    run_turns()
    turn.refresh_from_db()
    assert turn.answer.endswith(f"£18.00 is refunded and {order.customer} has an e-mail about it.")
    assert names_of_calls(turn) == ["find_order", "issue_refund", "notify_customer"]
    assert (Refund.objects.count(), len(mailoutbox)) == (1, 1)


def test_refunds_and_emails_name_the_call_that_made_them(
    order: Order, run_turns: RunTurns, mailoutbox: list[EmailMessage]
) -> None:
    turn = ask(f"Please refund order {order.number}.", run_turns)
    calls = {call.name: call.pk for call in ToolCall.objects.filter(turn=turn)}
    assert Refund.objects.get().tool_call == calls["issue_refund"]
    assert mailoutbox[0].extra_headers == {"X-Tool-Call": str(calls["notify_customer"])}


def test_a_question_is_answered_without_touching_anything(
    order: Order, run_turns: RunTurns, mailoutbox: list[EmailMessage]
) -> None:
    turn = ask(f"Where is order {order.number}?", run_turns)
    assert "is on its way" in turn.answer
    assert names_of_calls(turn) == ["find_order"]
    assert (Refund.objects.count(), mailoutbox) == (0, [])


def test_the_amount_that_the_customer_names_is_refunded(order: Order, run_turns: RunTurns) -> None:
    ask(f"May I have £5.50 of order {order.number} as a refund?", run_turns)
    assert Refund.objects.get().amount_pence == 550


def test_a_large_refund_waits_for_a_person_and_then_is_made(run_turns: RunTurns) -> None:
    turn = ask(f"Please refund order {new_order(8000).number}.", run_turns)
    assert (turn.status, turn.park_reason, Refund.objects.count()) == ("parked", "approval", 0)
    ToolCall.objects.awaiting_decision().get().approve()
    run_turns()
    turn.refresh_from_db()
    assert (turn.status, Refund.objects.get().amount_pence) == ("completed", 8000)


def test_a_declined_refund_is_told_to_the_customer(run_turns: RunTurns) -> None:
    turn = ask(f"Please refund order {new_order(8000).number}.", run_turns)
    ToolCall.objects.awaiting_decision().get().decline(reason="It was used.")
    run_turns()
    turn.refresh_from_db()
    assert turn.status == "completed"
    assert "It was used." in turn.answer
    assert names_of_calls(turn) == ["find_order", "issue_refund"]


def test_an_order_that_nobody_knows_is_said_so(run_turns: RunTurns) -> None:
    assert "There is no order 'A-9999'" in ask("Where is order A-9999?", run_turns).answer


def test_a_request_without_an_order_is_asked_for_its_number(run_turns: RunTurns) -> None:
    turn = ask("I want my money back!", run_turns)
    assert turn.answer.startswith("Which order is it about?")
    assert names_of_calls(turn) == []


def test_a_later_message_is_about_the_order_named_before(order: Order, run_turns: RunTurns) -> None:
    first = ask(f"Where is order {order.number}?", run_turns)
    later = first.session.send("Then please refund £1.00 of it.", limits=Limits(max_cost="0.50"))
    run_turns()
    later.refresh_from_db()
    assert Refund.objects.get().amount_pence == 100
    assert names_of_calls(later) == ["find_order", "issue_refund", "notify_customer"]


def test_a_rehearsed_empty_account_parks_and_a_retry_goes_on(order: Order, run_turns: RunTurns) -> None:
    turn = desk.start(f"Where is order {order.number}?", context={"rehearse": "spend_limit"})
    run_turns()
    turn.refresh_from_db()
    assert (turn.status, turn.park_reason) == ("parked", "provider_error")
    turn.retry()
    run_turns()
    turn.refresh_from_db()
    assert turn.status == "completed"


@pytest.mark.parametrize(
    ("environment", "model"),
    [
        ({}, "scripted:desk"),
        ({"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""}, "scripted:desk"),
        ({"OPENAI_API_KEY": "k"}, "openai:gpt-5-mini"),
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic:claude-sonnet-5"),
    ],
)
def test_a_key_in_the_environment_chooses_the_real_model(environment: dict[str, str], model: str) -> None:
    assert model_for(environment) == model
