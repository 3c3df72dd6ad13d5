"""What each decision does to a call and what the model then reads, word for word; and how calls come to be in doubt."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from agentturns import Agent, Conflict, ToolCall, Turn, TurnState, get_agent, tool
from agentturns.definitions.agent import _registry
from agentturns.engine.runner import run_turn
from agentturns.providers.scripted import ScriptedModel, reply
from agentturns.worker.sweep import expire_approvals
from tests.lost_workers import Died, run_until_death

pytestmark = pytest.mark.django_db(transaction=True)

runs: list[str] = []
resumed: list[bool] = []


@pytest.fixture(autouse=True)
def nothing_ran_yet() -> None:
    runs.clear()
    resumed.clear()


def run_or_die(text: str) -> str:
    """Remember the run; the first one for "boom" ends the worker."""
    runs.append(text)
    if text == "boom" and runs.count("boom") == 1:
        raise Died
    return f"did {text}"


@tool(effect="idempotent", approval="always")
def pay(text: str) -> str:
    """Pay."""
    return run_or_die(text)


@tool(effect="idempotent")
def note(text: str, state: TurnState) -> str:
    """Note a text."""
    resumed.append(state.resumed)
    return run_or_die(text)


@tool(effect="at_most_once")
def send(text: str) -> str:
    """Send."""
    return run_or_die(text)


@tool(effect="at_most_once", approval="always")
def wire(text: str) -> str:
    """Wire."""
    return run_or_die(text)


def asks(*calls: tuple[str, str]) -> Any:
    return reply(tool_calls=[(name, {"text": text}) for name, text in calls])


def start(*script: Any) -> tuple[Turn, ScriptedModel]:
    model = ScriptedModel([*script, reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[pay, note, send, wire])
    return agent.start("go"), model


def parked(*calls: tuple[str, str]) -> tuple[Turn, ToolCall, ScriptedModel]:
    """A turn parked on a decision about the first of these calls."""
    turn, model = start(asks(*calls))
    turn = run_turn(turn.pk)
    assert turn.status == "parked"
    return turn, turn.tool_calls.get(position=0), model


def doubtful(*calls: tuple[str, str]) -> tuple[Turn, ToolCall, ScriptedModel]:
    """A turn whose worker died in the call about "boom", parked by the next worker."""
    turn, model = start(asks(*calls))
    turn = run_turn(run_until_death(turn).pk)
    assert (turn.status, turn.park_reason) == ("parked", "in_doubt")
    return turn, turn.tool_calls.get(status="in_doubt"), model


def told(model: ScriptedModel) -> list[tuple[str, bool]]:
    """What the model read as the results of its first reply."""
    return [(said["content"], said["is_error"]) for said in model.requests[1].messages if said["role"] == "tool"]


def user_who_may(*codenames: str, name: str = "ann") -> User:
    user = User.objects.create_user(name)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


# -- approvals ----------------------------------------------------------------------------------------------------


def test_an_approved_call_is_run_itself_without_asking_the_model_again() -> None:
    turn, call, model = parked(("pay", "A"))
    call.approve(by=user_who_may("decide_toolcall"), note="looks right")
    assert (call.status, call.approval, call.note, call.decided_by_name) == (
        "pending",
        "approved",
        "looks right",
        "ann",
    )
    assert timezone.now() - call.decided_at < timedelta(minutes=1)
    assert (len(model.requests), runs) == (1, [])
    assert run_turn(turn.pk).answer == "done"
    assert (runs, told(model)) == (["A"], [("did A", False)])


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("", "Not run: a person declined this call."),
        ("too much\x00", "Not run: a person declined this call. Reason: too much\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_a_declined_call_is_not_run_and_the_model_reads_the_reason(reason: str, text: str) -> None:
    turn, call, model = parked(("pay", "A"))
    call.decline(reason=reason)
    assert (call.status, call.approval, call.output_text) == ("refused", "declined", text)
    assert run_turn(turn.pk).answer == "done"
    assert (runs, told(model)) == ([], [(text, True)])


def test_an_answer_is_what_the_model_gets_instead_of_a_run() -> None:
    turn, call, model = parked(("pay", "A"))
    call.answer("It was paid by hand.")
    assert (call.status, call.approval, call.result) == ("completed", "answered", "It was paid by hand.")
    assert run_turn(turn.pk).answer == "done"
    assert (runs, told(model)) == ([], [("It was paid by hand.", False)])


@pytest.mark.parametrize("text", ["", " \n", None])
def test_an_empty_answer_is_refused_and_nothing_is_decided(text: Any) -> None:
    _, call, _ = parked(("pay", "A"))
    with pytest.raises(ValueError, match=r"The answer is empty; write what the model should be told\."):
        call.answer(text)
    call.refresh_from_db()
    assert call.awaits_decision


def test_the_results_of_a_batch_reach_the_model_together_and_in_its_order() -> None:
    turn, _, model = parked(("pay", "A"), ("note", "B"), ("pay", "C"), ("note", "D"))
    assert runs == ["B", "D"]
    assert turn.waiting_for == "A person must approve or decline 2 calls (pay)."
    first, last = ToolCall.objects.awaiting_decision()
    last.approve()
    turn.refresh_from_db()
    assert (turn.status, turn.park_reason, len(model.requests)) == ("parked", "approval", 1)
    first.decline()
    assert run_turn(turn.pk).status == "completed"
    assert runs == ["B", "D", "C"]
    assert told(model) == [
        ("Not run: a person declined this call.", True),
        ("did B", False),
        ("did C", False),
        ("did D", False),
    ]


def test_an_approved_call_whose_tool_is_gone_gives_the_model_an_error_result() -> None:
    turn, call, model = parked(("pay", "A"))
    agent = get_agent("tester")
    agent.tools = (note,)
    call.approve()
    assert run_turn(turn.pk).status == "completed"
    assert (runs, told(model)) == ([], [("Not run: there is no tool named 'pay'. The tools are: note.", True)])


def test_what_was_approved_is_what_runs_though_a_default_changed_meanwhile() -> None:
    amounts: list[int] = []

    @tool(effect="idempotent", approval="always")
    def refund(order: str, pence: int = 500) -> str:
        """Refund."""
        amounts.append(pence)
        return ""

    @tool(effect="idempotent", approval="always", name="refund")
    def refund_after_deploy(order: str, pence: int = 50_000) -> str:
        """Refund."""
        amounts.append(pence)
        return ""

    model = ScriptedModel([reply(tool_calls=[("refund", {"order": "A"})]), reply("done")])
    agent = Agent(name="tester", model=model, instructions="…", tools=[refund])
    turn = run_turn(agent.start("go").pk)
    call = turn.tool_calls.get()
    assert call.arguments == {"order": "A", "pence": 500}
    call.approve()
    agent.tools = (refund_after_deploy,)
    assert run_turn(turn.pk).status == "completed"
    assert amounts == [500]


def test_a_second_decision_is_a_conflict_that_names_the_first() -> None:
    _, call, _ = parked(("pay", "A"))
    call.approve(by=user_who_may("decide_toolcall"))
    for again in (call.approve, call.decline, lambda: call.answer("text"), call.rerun, lambda: call.confirm("text")):
        with pytest.raises(Conflict) as late:
            again()
        assert (late.value.status, late.value.by, late.value.at) == ("approved", "ann", call.decided_at)
        assert str(late.value) == (
            f"The call of pay was already approved by ann at {call.decided_at:%Y-%m-%d %H:%M:%S}; nothing was changed."
        )


def test_a_call_that_asks_nobody_takes_no_decision() -> None:
    turn, _ = start(asks(("note", "A")))
    call = run_turn(turn.pk).tool_calls.get()
    with pytest.raises(Conflict) as late:
        call.approve()
    assert str(late.value) == (
        f"The call of note is completed and turn {turn.pk} is completed; no decision is open on it."
    )


def test_a_decision_asks_for_its_permission_and_is_logged_on_the_call() -> None:
    _, call, _ = parked(("pay", "A"))
    with pytest.raises(PermissionDenied) as refused:
        call.approve(by=user_who_may("raise_budget", name="bob"))
    assert str(refused.value) == "bob may not decide a tool call; it takes the permission agentturns.decide_toolcall."
    call.refresh_from_db()
    assert call.awaits_decision
    call.approve(by=user_who_may("decide_toolcall"))
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.content_type.model, entry.object_id) == ("ann", "toolcall", str(call.pk))
    assert entry.change_message.startswith("Approved.")


def test_the_last_decision_starts_a_fresh_stretch() -> None:
    turn, call, _ = parked(("pay", "A"))
    Turn.objects.filter(pk=turn.pk).update(stretch_seconds=500)
    call.approve()
    turn.refresh_from_db()
    assert (turn.status, turn.stretch_seconds) == ("queued", 0)


def test_an_approval_that_expired_counts_as_declined_and_a_retry_goes_on_with_that() -> None:
    turn, call, model = parked(("pay", "A"))
    assert expire_approvals() == 0
    ToolCall.objects.filter(pk=call.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert expire_approvals() == 1
    turn.refresh_from_db()
    call.refresh_from_db()
    assert (turn.status, turn.park_reason) == ("parked", "approval_expired")
    assert (call.status, call.approval) == ("refused", "expired")
    assert turn.waiting_for == (
        "Nobody decided a tool call in time, so it counts as declined; retry to go on with that."
    )
    with pytest.raises(Conflict, match="The call of pay was already expired at "):
        call.approve()
    assert run_turn(turn.retry().pk).status == "completed"
    assert (runs, len(told(model)), told(model)[0][1]) == ([], 1, True)
    assert told(model)[0][0].startswith("Not run: nobody approved this call within ")


# -- doubts -------------------------------------------------------------------------------------------------------


def test_a_call_that_a_dead_worker_began_is_in_doubt_and_not_run_again() -> None:
    turn, call, model = doubtful(("note", "A"), ("send", "boom"), ("note", "C"))
    assert turn.waiting_for == (
        "A crash left it unknown whether the call of send happened: look, then rerun it or confirm its result."
    )
    assert [one.status for one in turn.tool_calls.order_by("position")] == ["completed", "in_doubt", "completed"]
    assert (runs, len(model.requests)) == (["A", "boom", "C"], 1)
    assert resumed == [False, True]
    assert list(ToolCall.objects.awaiting_decision()) == [call]


def test_an_idempotent_call_of_a_dead_worker_is_run_again_and_nobody_is_asked() -> None:
    turn, model = start(asks(("note", "A"), ("note", "boom")))
    turn = run_turn(run_until_death(turn).pk)
    assert (turn.status, turn.attempt, runs) == ("completed", 2, ["A", "boom", "boom"])
    assert told(model) == [("did A", False), ("did boom", False)]
    assert resumed == [False, False, True]


def test_a_rerun_runs_the_call_once_more() -> None:
    turn, call, model = doubtful(("send", "boom"))
    call.rerun(by=user_who_may("decide_toolcall"))
    assert (call.status, call.decided_by_name, call.run_token) == ("pending", "ann", "")
    assert run_turn(turn.pk).status == "completed"
    assert (runs, told(model)) == (["boom", "boom"], [("did boom", False)])


def test_a_rerun_of_an_approved_call_asks_no_second_approval() -> None:
    turn, call, _ = parked(("wire", "boom"))
    call.approve()
    turn = run_turn(run_until_death(turn).pk)
    assert turn.park_reason == "in_doubt"
    turn.tool_calls.get().rerun()
    assert run_turn(turn.pk).status == "completed"
    assert runs == ["boom", "boom"]


def test_a_call_that_dies_again_after_its_rerun_is_in_doubt_again() -> None:
    turn, call, _ = doubtful(("send", "boom"))
    call.rerun()
    runs.clear()
    turn = run_turn(run_until_death(turn).pk)
    assert turn.park_reason == "in_doubt"
    assert turn.tool_calls.get().confirm("sent").status == "completed"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("sent as no. 7", "sent as no. 7"),
        ({"number": 7, "to": "Zoë"}, '{"number": 7, "to": "Zoë"}'),
        (None, "null"),
        ("", "(no output)"),
        (" ", "(no output)"),
        ("a\x00b", "a\N{REPLACEMENT CHARACTER}b"),
    ],
)
def test_a_confirmed_call_reads_as_if_the_tool_had_returned_it(result: Any, text: str) -> None:
    turn, call, model = doubtful(("send", "boom"))
    call.confirm(result)
    assert (call.status, call.output_text) == ("completed", text)
    assert run_turn(turn.pk).status == "completed"
    assert (runs, told(model)) == (["boom"], [(text, False)])


def test_a_long_confirmation_or_answer_is_cut_with_a_visible_mark(settings: Any) -> None:
    settings.AGENTTURNS = {"MAX_RESULT_CHARS": 10}
    cut = "x" * 10 + "\n[cut here: 10 of 30 characters shown]"
    _, call, _ = doubtful(("send", "boom"), ("pay", "A"))
    assert call.confirm("x" * 30).output_text == cut
    assert ToolCall.objects.awaiting_decision().get().answer("x" * 30).output_text == cut


def test_a_result_that_is_not_json_cannot_be_confirmed() -> None:
    _, call, _ = doubtful(("send", "boom"))
    with pytest.raises(TypeError, match=r"result\['at'\] is a datetime, which is not JSON"):
        call.confirm({"at": timezone.now()})
    call.refresh_from_db()
    assert call.status == "in_doubt"


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("", "Outcome unknown: a crash interrupted this call and it was not run again."),
        (
            "nobody knows",
            "Outcome unknown: a crash interrupted this call and it was not run again. Reason: nobody knows",
        ),
    ],
)
def test_a_doubt_may_be_left_as_it_is(reason: str, text: str) -> None:
    turn, call, model = doubtful(("send", "boom"))
    call.decline(reason=reason)
    assert (call.status, call.approval) == ("failed", "declined")
    assert run_turn(turn.pk).status == "completed"
    assert (runs, told(model)) == (["boom"], [(text, True)])


def test_a_doubt_is_neither_approved_nor_answered_and_an_approval_neither_rerun_nor_confirmed() -> None:
    turn, _, _ = doubtful(("send", "boom"), ("pay", "B"))
    assert turn.waiting_for == (
        "A crash left it unknown whether the call of send happened: look, then rerun it or confirm its result; a "
        "person must approve or decline the call of pay."
    )
    doubt, question = ToolCall.objects.awaiting_decision()
    for wrong in (doubt.approve, lambda: doubt.answer("text"), question.rerun, lambda: question.confirm("text")):
        with pytest.raises(Conflict, match=f"and turn {turn.pk} is parked; no decision is open on it"):
            wrong()
    question.approve()
    turn.refresh_from_db()
    assert turn.status == "parked"
    doubt.confirm("sent")
    assert run_turn(turn.pk).status == "completed"
    assert runs == ["boom", "B"]


def test_a_turn_taken_over_where_its_agent_is_not_declared_parks_and_keeps_its_open_call() -> None:
    turn, model = start(asks(("send", "boom")))
    run_until_death(turn)
    agent = _registry.pop("tester")
    turn = run_turn(turn.pk)
    assert (turn.park_reason, turn.tool_calls.get().status) == ("agent_missing", "started")
    _registry["tester"] = agent
    turn = run_turn(turn.retry().pk)
    assert (turn.park_reason, runs, len(model.requests)) == ("in_doubt", ["boom"], 1)
    turn.tool_calls.get().confirm("sent")
    assert run_turn(turn.pk).status == "completed"


def test_every_claim_but_the_first_is_a_resume() -> None:
    turn, _ = start(asks(("note", "A"), ("pay", "B")), asks(("note", "C")))
    turn = run_turn(turn.pk)
    ToolCall.objects.awaiting_decision().get().approve()
    assert run_turn(turn.pk).status == "completed"
    assert resumed == [False, True]
