"""``demo``: turns in several states in the project's own database, and the processes that move them on."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Final

from django.urls import reverse

from agentturns import Turn
from project.desk.agents import desk
from project.desk.demo import database
from project.desk.demo.processes import HOST, Processes
from project.desk.demo.report import Voice, table
from project.desk.demo.seeds import Seeded, ask_real_model, seed_crashed, seed_others, settle

LOOK_SECONDS: Final = 0.5


def stay_open(voice: Voice, port: int) -> None:
    """Seed, start, say what to press, and stay until a stop signal is raised. Raises ``DemoFailed``."""
    database.require_throwaway()
    with tempfile.TemporaryDirectory(prefix="agentturns-demo-") as name:
        database.migrate()
        password = database.open_account()
        try:
            with Processes(Path(name), os.environ) as processes:
                _open(voice, processes, port, password)
        finally:
            database.close_account()


def _open(voice: Voice, processes: Processes, port: int, password: str) -> None:
    voice.say("Starting a web server and a worker, and bringing some turns into the state they are to be seen in…")
    _, chosen = processes.start_web(port)
    if chosen != port:
        voice.say(f"Port {port} is taken, so the web server uses {chosen}.")
    seeds = seed_others()
    # Before there is a worker, which would take the turn up and send its e-mail.
    seeds.append(seed_crashed(processes))
    processes.start_worker()
    settle(seeds, processes)
    if desk.model_id.partition(":")[0] != "scripted":
        seeds.append(ask_real_model())
        settle(seeds[-1:], processes)
    origin = f"http://{HOST}:{chosen}"
    voice.say(_welcome(origin, password, seeds, processes))
    while True:
        time.sleep(LOOK_SECONDS)
        processes.require_alive()


def _welcome(origin: str, password: str, seeds: list[Seeded], processes: Processes) -> str:
    rows = [("turn", "state", "what to press")]
    rows += [(f"{seed.turn.pk}", _state(seed.turn), seed.advice) for seed in seeds]
    listed = reverse("admin:agentturns_turn_changelist")
    first = reverse("admin:agentturns_turn_change", args=[seeds[0].turn.pk])
    return "\n".join(
        [
            "",
            f"    Admin     {origin}{reverse('admin:index')}",
            f"    Login     {database.OPERATOR}",
            f"    Password  {password}   (until the demo ends)",
            "",
            table(rows),
            "",
            f"All turns: {origin}{listed}   Turn {seeds[0].turn.pk}: {origin}{first}",
            f"E-mails are written to {processes.outbox}, the worker's log to {processes.directory / 'worker.log'}.",
            f"The agent {desk.name!r} uses {desk.model_id}. To ask it something, in another terminal:",
            '    python manage.py shell -c "from agentturns import get_agent; '
            "get_agent('desk').start('Where is order A-1001?')\"",
            "",
            "Ctrl-C stops the web server and the worker; the turns stay in the database.",
        ]
    )


def _state(turn: Turn) -> str:
    why = turn.park_reason or turn.error_code
    return f"{turn.status} ({why})" if why else turn.status
