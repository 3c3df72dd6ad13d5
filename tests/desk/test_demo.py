"""``manage.py demo``, as a person lives in it: states to look at, buttons to press, and an end that leaves nothing."""

from __future__ import annotations

import html
import os
import re
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from project.desk.demo.browser import Browser
from tests.desk.running_demo import OPEN, RunningDemo, eventually, running, sqlite_url
from tests.llmock_server import running_llmock

pytestmark = pytest.mark.sqlite  # each demo has a file of its own

STATES = {
    ("parked", "max_cost", ""),
    ("parked", "approval", ""),
    ("queued", "", ""),
    ("parked", "provider_error", "insufficient_quota"),
    ("failed", "", "max_steps"),
    ("completed", "", ""),
    ("parked", "in_doubt", ""),
}


def rows(file: Path, query: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
        return database.execute(query).fetchall()


def states(file: Path) -> list[tuple[object, ...]]:
    return rows(file, "select status, park_reason, error_code from agentturns_turn order by id")


def turn_in(file: Path, state: str) -> int:
    (found,) = rows(file, f"select id from agentturns_turn where '{state}' in (status, park_reason)")
    assert isinstance(found[0], int)
    return found[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def opened(folder: Path) -> Iterator[RunningDemo]:
    """The first demo on an empty database; the tests down to the one that presses the buttons share it."""
    with running(DATABASE_URL=sqlite_url(folder / "pressed.sqlite3")) as demo:
        demo.read(OPEN)
        yield demo


@pytest.fixture(scope="module")
def seeded(folder: Path, opened: RunningDemo) -> Path:
    """A copy of the database as the first demo showed it."""
    with (
        sqlite3.connect(folder / "pressed.sqlite3") as source,
        sqlite3.connect(folder / "seeded.sqlite3") as target,
    ):
        source.backup(target)
    return folder / "seeded.sqlite3"


@pytest.fixture
def own(seeded: Path, tmp_path: Path) -> Path:
    """A database of this test's own, as the first demo showed it."""
    return Path(shutil.copy(seeded, tmp_path / "own.sqlite3"))


def test_it_shows_turns_in_every_state_that_asks_for_a_person(seeded: Path) -> None:
    assert set(states(seeded)) == STATES
    assert len(states(seeded)) == len(STATES)


def test_the_call_in_doubt_was_left_by_a_killed_process(seeded: Path) -> None:
    turn = turn_in(seeded, "in_doubt")
    assert rows(seeded, f"select crashes, attempt from agentturns_turn where id = {turn}") == [(1, 2)]
    calls = f"select name, effect from agentturns_toolcall where status = 'in_doubt' and turn_id = {turn}"
    assert rows(seeded, calls) == [("notify_customer", "at_most_once")]


def test_every_address_it_prints_opens(opened: RunningDemo, seeded: Path) -> None:
    browser = opened.browser()
    paths = {urlsplit(address).path for address in re.findall(r"http://\S+", opened.output)}
    assert len(paths) == 3
    for path in paths:
        assert "Log out" in browser.get(path)


def press(browser: Browser, page: str, button: str, **fields: str) -> None:
    """Press the button with this label on ``page``, with what is written beside it."""
    form = next(
        form for form in re.findall(r"<form.*?</form>", browser.get(page), re.S) if button in html.unescape(form)
    )
    action = re.search(r'<form[^>]* action="([^"]+)"', form)
    named = re.search(rf'<button[^>]* name="(\w+)" value="(\w+)"[^>]*>{re.escape(button)}', html.unescape(form))
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
    assert action, form
    browser.send(html.unescape(action[1]), {**hidden, **fields, **({named[1]: named[2]} if named else {})})


def test_what_it_says_to_press_leads_every_turn_to_its_end(opened: RunningDemo, seeded: Path, folder: Path) -> None:
    file, browser = folder / "pressed.sqlite3", opened.browser()
    page = "/admin/agentturns/turn/{}/change/"
    raised = "/admin/agentturns/turn/{}/raise/"
    browser.submit(raised.format(turn_in(seeded, "max_cost")), max_cost="0.20", reason="Go on.")
    browser.submit(raised.format(turn_in(seeded, "failed")), max_steps="12", reason="Go on.")
    press(browser, page.format(turn_in(seeded, "provider_error")), "Retry")
    press(browser, page.format(turn_in(seeded, "approval")), "Approve")
    press(browser, page.format(turn_in(seeded, "in_doubt")), "It did not happen: run it again")
    assert eventually(lambda: {state[0] for state in states(file)} == {"completed"}, 20), states(file)


def test_a_second_demo_brings_back_the_states_that_were_used_up(opened: RunningDemo, own: Path) -> None:
    with sqlite3.connect(own) as database:
        # As if an operator had canceled it.
        database.execute("update agentturns_turn set status='canceled', park_reason='' where park_reason='max_cost'")
    with running(DATABASE_URL=sqlite_url(own)) as demo:
        demo.read(OPEN)
        assert set(states(own)) == STATES | {("canceled", "", "")}
        assert len(states(own)) == len(STATES) + 1


def test_with_a_key_in_the_environment_the_desk_asks_the_real_model(own: Path) -> None:
    with running_llmock() as vendor:
        vendor.script({"type": "reply", "text": "It is on its way."})
        environment = {"OPENAI_API_KEY": "not-a-key", "OPENAI_BASE_URL": vendor.openai_url}
        with running(DATABASE_URL=sqlite_url(own), **environment) as demo:
            demo.read(OPEN)
            assert "The agent 'desk' uses openai:gpt-5-mini." in demo.output
            assert len(vendor.requests()) == 1


def end_by_ctrl_c(demo: RunningDemo) -> None:
    demo.type(b"\x03")


def end_by_sigterm(demo: RunningDemo) -> None:
    demo.process.terminate()


def end_by_closed_terminal(demo: RunningDemo) -> None:
    demo.close_terminal()


def end_by_sigkill(demo: RunningDemo) -> None:
    demo.process.kill()


@pytest.mark.parametrize("end", [end_by_ctrl_c, end_by_sigterm, end_by_closed_terminal, end_by_sigkill])
def test_however_it_ends_no_process_is_left(end: object, own: Path) -> None:
    assert callable(end)
    with running(terminal=True, DATABASE_URL=sqlite_url(own)) as demo:
        demo.read(OPEN)
        # The demo, two leashes, the web server, the worker's supervisor and its cluster.
        assert eventually(lambda: len(demo.pids()) >= 6, 30)
        end(demo)
        assert demo.leaves_nothing()


@pytest.mark.parametrize("end", [end_by_ctrl_c, end_by_sigterm, end_by_closed_terminal])
def test_stopped_while_it_starts_it_leaves_no_process(end: object, own: Path) -> None:
    assert callable(end)
    with running(terminal=True, DATABASE_URL=sqlite_url(own)) as demo:
        demo.read("Starting a web server")
        assert eventually(lambda: bool(demo.pids("runserver")), 30)
        end(demo)
        assert demo.leaves_nothing()


def test_ctrl_c_says_what_it_ended(own: Path) -> None:
    with running(terminal=True, DATABASE_URL=sqlite_url(own)) as demo:
        demo.read(OPEN)
        demo.type(b"\x03")
        assert demo.end(20) == 0
        assert "Stopped by SIGINT; the web server and the worker are gone." in demo.output


def test_after_the_terminal_is_closed_nobody_can_log_in_any_more(own: Path) -> None:
    account = "select is_active, is_superuser, password like '!%' from auth_user where username = 'demo'"
    with running(terminal=True, DATABASE_URL=sqlite_url(own)) as demo:
        demo.read(OPEN)
        assert rows(own, account) == [(1, 1, 0)]
        demo.close_terminal()
        assert demo.process.wait(20) == 0
    assert rows(own, account) == [(0, 0, 1)]


def test_a_web_server_that_dies_ends_the_demo_with_a_sentence(own: Path) -> None:
    with running(DATABASE_URL=sqlite_url(own)) as demo:
        demo.read(OPEN)
        for pid in demo.pids("runserver", but_not="leash"):
            os.kill(pid, signal.SIGKILL)
        assert demo.end(20) == 1
        assert "The demo failed. The web server ended by itself with exit code 137." in demo.output
        assert demo.pids() == []
