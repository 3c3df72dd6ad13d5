"""What becomes of a message to a session of which a turn is not over: a table of policy and state."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Max
from django.utils import timezone

from agentturns import doorbell
from agentturns.conf import conf
from agentturns.definitions.agent import Agent
from agentturns.exceptions import ConfigurationError
from agentturns.models.clock import database_now_plus
from agentturns.models.lifecycle import swap
from agentturns.models.states import Status

if TYPE_CHECKING:
    from agentturns.models.session import Session
    from agentturns.models.turn import Turn


class Way(Enum):
    """What a message does."""

    NEXT = "becomes the next turn"
    MERGE = "is added to the input of the turn that has not begun"
    STEER = "enters the turn at its next boundary"
    STOP = "ends the turn, at its next boundary where it runs, and becomes the next turn"


class Standing(Enum):
    """Where the first unfinished turn of the session stands."""

    NEW = "queued, not begun"
    RUNNING = "running"
    WAITING = "queued, begun before (back-off, yield, resumed)"
    PARKED = "parked"


WAYS: Final[dict[str, dict[Standing, Way]]] = {
    "followup": dict.fromkeys(Standing, Way.NEXT),
    "collect": {
        Standing.NEW: Way.MERGE,
        Standing.RUNNING: Way.NEXT,
        Standing.WAITING: Way.NEXT,
        Standing.PARKED: Way.NEXT,
    },
    "steer": {
        Standing.NEW: Way.MERGE,
        Standing.RUNNING: Way.STEER,
        Standing.WAITING: Way.STEER,
        Standing.PARKED: Way.STEER,
    },
    "interrupt": {
        Standing.NEW: Way.NEXT,
        Standing.RUNNING: Way.STOP,
        Standing.WAITING: Way.STOP,
        Standing.PARKED: Way.STOP,
    },
}


def policy_of(session: Session, agent: Agent) -> str:
    """The policy a new turn of ``session`` gets: the session's, else the agent's, else the settings'."""
    policy = session.queue_policy or agent.queue_policy or conf.QUEUE_POLICY
    if policy not in WAYS:
        raise ConfigurationError(f"The queue policy {policy!r} is unknown; it is one of {', '.join(WAYS)}.")
    return policy


def standing_of(turn: Turn) -> Standing:
    """Where an unfinished turn stands."""
    if turn.status == Status.QUEUED:
        return Standing.NEW if turn.attempt == 0 else Standing.WAITING
    return Standing.RUNNING if turn.status == Status.RUNNING else Standing.PARKED


def first_unfinished(session: Session) -> Turn | None:
    """The turn that the session's next ones wait for, locked. The session's row is locked by the caller."""
    from agentturns.models.turn import Turn

    return (
        Turn.objects.select_for_update(no_key=True)
        .filter(session=session, status__in=Status.unfinished())
        .order_by("index")
        .first()
    )


def take_in(session: Session, turn: Turn, *, text: str, key: str) -> tuple[Way, Turn]:
    """Let the message do what the turn's policy says; where that is ``NEXT`` or ``STOP`` the caller queues it.

    Session and turn are locked by the caller.
    """
    from agentturns.models.message import Message

    way = WAYS[turn.queue_policy][standing_of(turn)]
    last = _last_new(session, turn)
    if turn.queue_policy == "collect" and last is not None:
        way, turn = Way.MERGE, last
    if way is Way.STEER and (turn.messages_waiting >= conf.STEER_MAX or last is not None):
        way = Way.NEXT  # full, or it would overtake a message that waits behind this turn already
    if way is Way.MERGE and len(turn.input.encode()) + len(text.encode()) + 2 > conf.MAX_INPUT_BYTES:
        way = Way.NEXT
    if way is Way.MERGE:
        Message.objects.create(session=session, turn=turn, kind=Message.Kind.COLLECT, key=key, text=text, after_step=0)
        swap(turn, Status.QUEUED, input=f"{turn.input}\n\n{text}", **_debounced(turn))
        doorbell.ring(turn.pk)
    elif way is Way.STEER:
        Message.objects.create(session=session, turn=turn, kind=Message.Kind.STEER, key=key, text=text)
        swap(turn, turn.status, messages_waiting=turn.messages_waiting + 1)
    elif way is Way.STOP and turn.cancel_requested_at is None:
        turn.cancel(reason="a newer message came in")
    return way, turn


def _last_new(session: Session, first: Turn) -> Turn | None:
    """The session's last turn, if it waits behind ``first`` and has not begun."""
    from agentturns.models.turn import Turn

    return (
        Turn.objects.select_for_update(no_key=True)
        .filter(session=session, index__gt=first.index, status=Status.QUEUED, attempt=0)
        .order_by("-index")
        .first()
    )


def debounce(policy: str) -> dict[str, Any]:
    """Columns of a new turn: under ``collect`` it waits a little for more to come."""
    if policy != "collect":
        return {}
    return {"run_after": database_now_plus(conf.COLLECT_DEBOUNCE_SECONDS)}


def _debounced(turn: Turn) -> dict[str, Any]:
    """Wait again for more to come, but not past the ceiling."""
    if turn.queue_policy != "collect":
        return {}
    age = (timezone.now() - turn.created_at).total_seconds()
    left = conf.COLLECT_CEILING_SECONDS - age
    return {"run_after": database_now_plus(max(0.0, min(conf.COLLECT_DEBOUNCE_SECONDS, left)))}


def deliver(turn: Turn, after_step: int) -> list[str]:
    """Mark the waiting messages of ``turn`` as seen after ``after_step``; their texts, oldest first.

    Called by the turn's worker in a transaction that its fence ends.
    """
    from agentturns.models.message import Message

    waiting = list(Message.objects.filter(turn=turn.pk, after_step=None).order_by("pk"))
    Message.objects.filter(pk__in=[message.pk for message in waiting]).update(after_step=after_step)
    return [message.text for message in waiting]


def promote(turn: Turn) -> None:
    """Make each message that still waits for the ended ``turn`` a turn of its own. Session and turn are locked."""
    from agentturns.models.message import Message
    from agentturns.models.turn import Turn

    if not turn.messages_waiting:
        return
    last = Turn.objects.filter(session=turn.session_id).aggregate(last=Max("index"))["last"]
    waiting = Message.objects.filter(turn=turn.pk, after_step=None).order_by("pk")
    for index, message in enumerate(waiting, start=last + 1):
        promoted = Turn.objects.create(
            session_id=turn.session_id,
            index=index,
            agent=turn.agent,
            tenant=turn.tenant,
            user_id=turn.user_id,
            user_name=turn.user_name,
            context=turn.context,
            limits=turn.limits,
            model=turn.model,
            queue_policy=turn.queue_policy,
            input=message.text,
        )
        Message.objects.filter(pk=message.pk).update(turn=promoted, after_step=0, kind=Message.Kind.COLLECT)
    Turn.objects.filter(pk=turn.pk).update(messages_waiting=0)


def wording(text: str) -> str:
    """A steering message as the model reads it."""
    return conf.STEER_WORDING.replace("{message}", text)
