"""How requests come in: checked, cleaned, and queued as turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max

from agentturns import doorbell
from agentturns.cleaning import clean_text, require_json
from agentturns.conf import conf
from agentturns.definitions.agent import Agent, get_agent
from agentturns.definitions.limits import Limits
from agentturns.exceptions import ConfigurationError
from agentturns.models.audit import name_of
from agentturns.models.message import Message
from agentturns.models.queueing import Way, debounce, first_unfinished, policy_of, take_in
from agentturns.models.session import Session
from agentturns.models.turn import Turn

KEY_LENGTH = 200


def open_session(
    *,
    agent: Agent,
    input: str,
    tenant: str,
    user: Any,
    context: Any,
    metadata: Any,
    limits: Limits | None,
    key: str,
) -> Turn:
    """Open a session with ``agent`` and queue its first turn; a known key returns the turn that exists."""
    tenant, key = _label(tenant, "tenant"), _label(key, "key")
    columns = _request(agent, input, context, limits)
    kept = _json_dict(metadata, "metadata")
    if not getattr(user, "is_authenticated", True):
        user = None  # whoever is not logged in is nobody, not a row

    def create() -> Turn:
        session = Session.objects.create(
            agent=agent.name, tenant=tenant, user=user, user_name=name_of(user), metadata=kept
        )
        return _queue(session, agent, index=1, key=key, columns=columns)

    return _once(create, agent.name, tenant, key)


def follow_up(session: Session, *, input: str, context: Any, limits: Limits | None, key: str) -> Turn:
    """Take a message into ``session`` as its queue policy says; a known key returns the turn that has it."""
    agent = get_agent(session.agent)
    key = _label(key, "key")
    columns = _request(agent, input, context, limits)

    def create() -> Turn:
        held = Session.objects.select_for_update(no_key=True).get(pk=session.pk)
        known = Message.objects.filter(session=session, key=key).first() if key else None
        if known is not None:
            return known.turn
        # A message with limits or a context of its own cannot share another turn's.
        shares = not columns["context"] and not columns["limits"]
        turn = first_unfinished(held)
        if turn is not None and shares:
            way, turn = take_in(held, turn, text=columns["input"], key=key)
            if way in (Way.MERGE, Way.STEER):
                return turn
        last = Turn.objects.filter(session=session).aggregate(last=Max("index"))["last"] or 0
        return _queue(held, agent, index=last + 1, key=key, columns=columns)

    return _once(create, session.agent, session.tenant, key)


def _once(create: Callable[[], Turn], agent: str, tenant: str, key: str) -> Turn:
    known = Turn.objects.filter(agent=agent, tenant=tenant, key=key)
    if key and (turn := known.first()):
        return turn
    try:
        with transaction.atomic(using=conf.DATABASE):
            return create()
    except IntegrityError:
        if key and (turn := known.first()):
            return turn
        raise


def _queue(session: Session, agent: Agent, *, index: int, key: str, columns: dict[str, Any]) -> Turn:
    policy = policy_of(session, agent)
    turn: Turn = Turn.objects.create(
        session=session,
        index=index,
        agent=session.agent,
        tenant=session.tenant,
        user_id=session.user_id,
        user_name=session.user_name,
        key=key,
        queue_policy=policy,
        **debounce(policy),
        **columns,
    )
    doorbell.ring(turn.pk)
    return turn


def _request(agent: Agent, input: Any, context: Any, limits: Any) -> dict[str, Any]:
    if not isinstance(input, str):
        raise TypeError(f"input is a {type(input).__name__}, but a turn starts from text.")
    text = clean_text(input)
    if not text.strip():
        raise ValueError("input is empty; give the agent something to answer.")
    size = len(text.encode())
    if size > conf.MAX_INPUT_BYTES:
        raise ValueError(
            f"input is {size:,} bytes, above AGENTTURNS['MAX_INPUT_BYTES'] = {conf.MAX_INPUT_BYTES:,}; "
            "shorten it, or give the agent a tool that reads the rest."
        )
    for model in agent.model_ids:
        alias = model.partition(":")[0]
        if alias not in conf.PROVIDERS:
            raise ConfigurationError(
                f"Agent {agent.name!r} uses the provider alias {alias!r}, but AGENTTURNS['PROVIDERS'] has "
                f"{', '.join(sorted(conf.PROVIDERS))}; add it there or correct the model {model!r}."
            )
    return {
        "input": text,
        "context": _json_dict(context, "context"),
        "limits": Limits.of(limits).to_json(),
        "model": agent.model_id,
    }


def _json_dict(value: Any, name: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is a {type(value).__name__}, but it is a dict of JSON values.")
    try:
        return require_json(dict(value), name)
    except RecursionError:
        raise ValueError(f"{name} contains itself or is nested too deeply for JSON; pass a flatter dict.") from None


def _label(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is a {type(value).__name__}, but it is text.")
    if len(value) > KEY_LENGTH:
        raise ValueError(f"{name} is {len(value)} characters long, but at most {KEY_LENGTH} are kept.")
    return clean_text(value)
