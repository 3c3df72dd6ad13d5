"""``demo --once``: one turn that parks on its cost limit, is raised in the admin, resumes and answers."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

from django.urls import reverse

from agentturns import Turn
from project.desk.agents import SCRIPT, desk
from project.desk.demo import database
from project.desk.demo.browser import Browser, says
from project.desk.demo.evidence import Evidence, what_went_wrong
from project.desk.demo.failure import DemoFailed
from project.desk.demo.orders import new_order
from project.desk.demo.processes import HOST, Child, Processes, environment_without_keys
from project.desk.demo.report import Voice, resume_table
from project.desk.demo.waiting import require

NEW_LIMIT: Final = "0.20"
SECONDS: Final = 25  # for each of the two waits


def show_once(voice: Voice, port: int) -> None:
    """Run the whole of it and print the table. Raises ``DemoFailed``."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agentturns-demo-") as name, desk.override(model=SCRIPT):
        directory = Path(name)
        with _database(directory) as environment:
            database.migrate()
            password = database.open_account()
            try:
                with Processes(directory, environment) as processes:
                    turn, before, after = _one_turn(voice, processes, port, password)
            finally:
                database.close_account()
            voice.say()
            voice.say(resume_table(before, after))
            voice.say()
            voice.say(f"Answer: {turn.answer}")
            if wrong := what_went_wrong(before, after):
                raise DemoFailed(wrong)
    voice.say(f"Done in {time.monotonic() - began:.1f} seconds; the web server and the worker are stopped.")


@contextmanager
def _database(directory: Path) -> Iterator[dict[str, str]]:
    """The environment of the processes: a database of their own, unless one is named in the environment."""
    environment = environment_without_keys()
    given = environment.get("DATABASE_URL")
    if given:
        database.require_throwaway()
    url = given or database.url_of(directory / "demo.sqlite3")
    with nullcontext() if given else database.instead_of_the_projects(url):
        yield {**environment, "DATABASE_URL": url}


def _one_turn(voice: Voice, processes: Processes, port: int, password: str) -> tuple[Turn, Evidence, Evidence]:
    worker = processes.start_worker()
    web, port = processes.start_web(port)
    voice.say(f"A web server on port {port} and a worker are running, each in a process of its own.")
    order = new_order(1800)
    turn = desk.start(f"Order {order.number} came broken. Please refund all of it.", tenant="demo")
    voice.say(f"Turn {turn.pk} is started: {turn.input}")
    require(turn, lambda turn: turn.budget_parked, processes, worker, what="parked on max_cost", seconds=SECONDS)
    before = Evidence.of(turn, processes.outbox)
    voice.say(f"It is parked. {turn.waiting_for}")
    _raise_in_admin(voice, Browser(f"http://{HOST}:{port}"), turn, password, web)
    require(turn, lambda turn: turn.is_finished, processes, worker, what="finished after the raise", seconds=SECONDS)
    return turn, before, Evidence.of(turn, processes.outbox)


def _raise_in_admin(voice: Voice, browser: Browser, turn: Turn, password: str, web: Child) -> None:
    """What an operator does: log in, open the form, write the new limit and why."""
    try:
        login = f"{reverse('admin:login')}?next={reverse('admin:agentturns_turn_change', args=[turn.pk])}"
        browser.submit(login, username=database.OPERATOR, password=password)
        page = browser.submit(
            reverse("admin:agentturns_turn_raise", args=[turn.pk]),
            max_cost=NEW_LIMIT,
            reason="The refund is made; let it write to the customer.",
        )
    except DemoFailed as failure:
        raise DemoFailed(str(failure), log=web.tail()) from failure
    voice.say(f"The raise is posted to the admin's form. The page says: {says(page)}")
