"""The six steps of README.md, done by script in a new project with the README's text and nothing else."""

from __future__ import annotations

import ast
import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.readme import OPERATIONS, ROOT, Block, blocks, section

STEPS = section("Add it to your project")
ADDED = "\n# added by the README's step\n"


class Project:
    """A project made by ``django-admin startproject`` in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        kept = ("PATH", "HOME", "TMPDIR", "LANG", "VIRTUAL_ENV")
        # In place of the first step, which would ask the network for what this environment has already.
        self.environment = {key: os.environ[key] for key in kept if key in os.environ} | {"PYTHONPATH": str(ROOT)}
        self.run("-m", "django", "startproject", "mysite", ".")
        self.run("manage.py", "startapp", "shop")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python with ``arguments`` in the project. Fails if it fails."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def shell(self, code: str) -> Any:
        """What ``code``, run by ``manage.py shell``, prints as JSON in its last line."""
        done = self.run("manage.py", "shell", "--no-imports", "-c", textwrap.dedent(code))
        return json.loads(done.stdout.splitlines()[-1])

    def follow(self, block: Block) -> None:
        """Do what a block says: run its commands, or write its file."""
        if block.language == "sh":
            for command in block.code.splitlines():
                self.run(*_after_python(command))
            return
        file = self.directory / block.file
        assert block.file, block.code
        if block.is_addition:
            file.write_text(file.read_text() + ADDED + block.code)
        else:
            file.write_text(block.code)

    @contextmanager
    def serving(self, command: str) -> Iterator[None]:
        """Run a command of the README's that stays, and end it as Ctrl-C does."""
        log = (self.directory / "served.log").open("wb")
        served = subprocess.Popen(
            [sys.executable, *_after_python(command)],
            cwd=self.directory,
            env=self.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
            served.send_signal(signal.SIGINT)
            assert served.wait(40) == 0, (self.directory / "served.log").read_text()
        finally:
            log.close()
            if served.poll() is None:
                os.killpg(served.pid, signal.SIGKILL)
                served.wait()


def _after_python(command: str) -> list[str]:
    program, *arguments = shlex.split(command)
    assert program == "python", command
    return arguments


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A new project in which the steps that write files and tables are done."""
    made = Project(tmp_path_factory.mktemp("mysite"))
    install, *writing, _running = blocks(STEPS)
    assert install.code.startswith("pip install ")
    for block in writing:
        made.follow(block)
    return made


def test_there_are_at_most_six_steps() -> None:
    numbers = [line[2] for line in STEPS.splitlines() if line.startswith("**") and line[3:5] == ". "]

    assert numbers == ["1", "2", "3", "4", "5", "6"]


def test_the_project_has_no_warning_after_the_steps(project: Project) -> None:
    said = project.run("manage.py", "check", "--database", "default", "--fail-level", "WARNING")

    assert "no issues (0 silenced)" in said.stdout


def test_a_turn_parks_is_raised_in_the_admin_and_answers(project: Project) -> None:
    worker, _web, first = blocks(STEPS)[-1].code.splitlines()
    before_and_after = """
        import json, time
        from django.contrib.auth import get_user_model
        from django.test import Client
        from django.urls import reverse
        from agentturns import Turn

        browser = Client(headers={"host": "localhost"})
        pk = browser.post("/ask/", {"text": "Where is order A-1?"}).json()["turn"]

        def wait_while(pk, *passing):
            ends_at = time.monotonic() + 45
            while (now := browser.get(f"/answer/{pk}/").json())["status"] in passing and time.monotonic() < ends_at:
                time.sleep(0.05)
            return now

        first = wait_while(Turn.objects.earliest("pk").pk, "queued", "running")
        parked = wait_while(pk, "queued", "running")
        browser.force_login(get_user_model().objects.create_superuser("maria"))
        form = {"max_cost": "0.10", "reason": "tried by script"}
        raised = browser.post(reverse("admin:agentturns_turn_raise", args=[pk]), form).status_code
        ended = wait_while(pk, "queued", "running", "parked")
        turn = Turn.objects.get(pk=pk)
        print(json.dumps({
            "first": first, "parked": parked, "raised": raised, "ended": ended, "cost": str(turn.cost),
            "steps": list(turn.steps.values_list("attempts", flat=True)),
            "calls": list(turn.tool_calls.values_list("name", "status")),
        }))
    """
    with project.serving(worker):
        project.run(*_after_python(first))
        happened = project.shell(before_and_after)

    assert happened["parked"]["status"] == "parked"
    assert happened["parked"]["waiting_for"] == "Spent $0.03 of max_cost $0.02; raise max_cost to go on."
    assert happened["first"] == happened["parked"]
    assert happened["raised"] == 302
    assert happened["ended"] == {
        "status": "completed",
        "answer": "Order A-1 was delivered on Monday.",
        "waiting_for": "",
    }
    assert (happened["steps"], happened["calls"], happened["cost"]) == ([1, 1], [["find_order", "completed"]], "0.04")


def test_the_view_refuses_an_empty_request(project: Project) -> None:
    said = project.shell(
        """
        import json
        from django.test import Client
        refused = Client(headers={"host": "localhost"}).post("/ask/", {"text": " "})
        print(json.dumps([refused.status_code, refused.json()]))
        """
    )

    assert said == [400, {"error": "input is empty; give the agent something to answer."}]


def test_the_web_server_s_command_runs(project: Project) -> None:
    _worker, web, _first = blocks(STEPS)[-1].code.splitlines()

    assert web == "python manage.py runserver"
    assert "usage: manage.py runserver" in project.run("manage.py", "runserver", "--help").stdout


def test_the_test_of_an_agent_passes(project: Project) -> None:
    [block] = blocks(section("Testing your agents"))
    project.follow(block)

    assert "Ran 1 test" in project.run("manage.py", "test", "shop").stderr


def test_the_queries_run(project: Project) -> None:
    [asking] = blocks(section("Asking the rows"))
    watching, _log = blocks(section("What to watch", OPERATIONS))

    assert project.shell(f"{_looked_at(asking.code + watching.code)}\nprint(1)") == 1


def _looked_at(code: str) -> str:
    """``code`` with each expression's value shown, as a shell does; a queryset that nobody looks at runs no query."""
    lines = ast.parse(code).body
    return "\n".join(
        f"repr({ast.unparse(line)})" if isinstance(line, ast.Expr) else ast.unparse(line) for line in lines
    )


def test_the_settings_of_postgresql_and_of_providers_have_no_warning(project: Project) -> None:
    pages = section("PostgreSQL and several worker hosts"), section("Providers", OPERATIONS)
    code = [block.code for page in pages for block in blocks(page) if block.language == "python"]
    assert len(code) == 2
    (project.directory / "elsewhere.py").write_text("from mysite.settings import *\n\n" + "\n".join(code))

    said = project.run("manage.py", "check", "--settings", "elsewhere", "--fail-level", "WARNING")

    assert "no issues (0 silenced)" in said.stdout
