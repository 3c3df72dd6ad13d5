"""For tests of your agents: a scripted model, and turns run at once on the test's own thread and connection."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from django.db import connections

from agentturns.conf import conf
from agentturns.providers.scripted import ScriptedModel, reply

if TYPE_CHECKING:
    from agentturns.models import Turn

__all__ = ["ScriptedModel", "drain", "reply"]

logger = logging.getLogger("agentturns")


def drain(limit: int = 1_000) -> list[Turn]:
    """Run every runnable turn, one after the other, and return them, refreshed, in the order they were taken up.

    Works inside ``TestCase`` too: no thread but this one sees the rows, and what waits for a commit (signals) runs
    where production would commit. A turn that backs off is left queued for later. An error that would take a worker's
    thread down comes out here. Raises ``RuntimeError`` when turns are runnable still after ``limit`` were taken up.
    """
    from agentturns.engine.keeper import LeaseKeeper
    from agentturns.engine.runner import run_claimed
    from agentturns.models import Turn
    from agentturns.models.claims import candidates

    keeper = LeaseKeeper()
    taken_up: dict[int, None] = {}
    inside_test: bool = connections[conf.DATABASE].in_atomic_block
    around: AbstractContextManager[Any] = _hooks_run_as_if_committed() if inside_test else keeper.beating()
    with around:
        for _ in range(limit):
            runnable = candidates(1, alone=True)
            if not runnable:
                break
            claim = keeper.claim(runnable[0])
            if claim is not None:
                taken_up[claim.turn.pk] = None
                run_claimed(claim, keeper)
        else:
            left = candidates(1, alone=True)
            if left:
                raise RuntimeError(
                    f"drain() took turns up {limit:,} times and turn {left[0]} is runnable still. If that many are "
                    "meant, pass a higher limit; else look for a tool or a receiver that keeps starting turns."
                )
    rows = Turn.objects.in_bulk(taken_up)
    return [rows[pk] for pk in taken_up if pk in rows]


@contextmanager
def _hooks_run_as_if_committed() -> Iterator[None]:
    """Inside a test's transaction, run on-commit hooks whenever a transaction of the engine's would have committed.

    There it is a savepoint that ends, and Django would keep the hooks for a commit that never comes.
    """
    connection: Any = connections[conf.DATABASE]
    depth, already = len(connection.savepoint_ids), len(connection.run_on_commit)
    commit = connection.savepoint_commit

    def run_hooks() -> None:
        while len(connection.run_on_commit) > already:
            _, hook, robust = connection.run_on_commit.pop(already)
            try:
                hook()
            except Exception:
                if not robust:
                    raise
                logger.exception("on-commit hook failed hook=%s", getattr(hook, "__qualname__", hook))

    def commit_and_run(sid: str) -> None:
        commit(sid)
        if len(connection.savepoint_ids) == depth:
            run_hooks()

    connection.savepoint_commit = commit_and_run
    try:
        yield
        run_hooks()
    finally:
        del connection.savepoint_commit
