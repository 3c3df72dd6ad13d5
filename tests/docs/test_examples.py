"""The programs of docs/examples, run as a reader runs them, and the rows that they leave."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PROGRAMS = {"refund_desk", "nightly_report", "tenant_chat"}


class Ran:
    """One example after its run: what it printed, and its rows."""

    def __init__(self, name: str, directory: Path) -> None:
        self.database = directory / f"{name}.sqlite3"
        # Whatever the tests themselves run on, an example brings its own.
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("DJANGO_", "DATABASE_", "DEBUG"))
        }
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / f"{name}.py"), str(self.database)],
            cwd=ROOT,
            env=kept,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        self.printed = done.stdout

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    """Runs an example, once however many tests look at it."""
    runs: dict[str, Ran] = {}

    def run(name: str) -> Ran:
        if name not in runs:
            runs[name] = Ran(name, tmp_path_factory.mktemp("example"))
        return runs[name]

    return run


def test_every_example_is_tested_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == PROGRAMS | {"temporary_project"}


def test_an_example_leaves_nothing_behind_when_no_file_is_named(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run(
        [sys.executable, str(EXAMPLES / "tenant_chat.py")], cwd=ROOT, env=environment, check=True, capture_output=True
    )

    assert list(tmp_path.iterdir()) == []


# -- refund desk -------------------------------------------------------------------------------------------------------


def test_only_permitted_refunds_are_written_and_each_once(ran: Callable[[str], Ran]) -> None:
    refunds = ran("refund_desk").rows(
        "SELECT o.number, r.pence FROM refund_desk_refund r JOIN refund_desk_order o ON o.id = r.order_id ORDER BY r.id"
    )

    assert refunds == [("A-1", 1900), ("A-2", 8000)]


def test_the_refund_desk_decides_by_its_rule_and_by_a_person(ran: Callable[[str], Ran]) -> None:
    calls = ran("refund_desk").rows(
        "SELECT status, approval, decided_by_name FROM agentturns_toolcall WHERE name = 'issue_refund' ORDER BY turn_id"
    )

    assert calls == [
        ("completed", "", ""),
        ("completed", "approved", "maria"),
        ("refused", "declined", "maria"),
        ("refused", "", ""),
    ]


def test_the_refund_desk_says_what_it_waited_for_and_how_each_request_ended(ran: Callable[[str], Ran]) -> None:
    printed = ran("refund_desk").printed

    assert printed.count("parked     A person must approve or decline the call of issue_refund.") == 2
    assert "No refund for A-3. Not run: a person declined this call. Reason: the parcel is still" in printed
    assert "No refund for A-4. Not run: only 3000 pence were paid for A-4." in printed
    assert "to a-2@example.com: We refunded 8000 pence for A-2." in printed
    assert "Spent: $0.0280 in 14 model calls of 4 turns" in printed


def test_no_decision_made_the_refund_desk_repeat_a_model_call(ran: Callable[[str], Ran]) -> None:
    attempts = ran("refund_desk").rows("SELECT DISTINCT status, attempts FROM agentturns_step")

    assert attempts == [("completed", 1)]


# -- nightly report ----------------------------------------------------------------------------------------------------


def test_the_report_is_one_turn_that_parks_at_its_cap_and_completes_after_a_raise(ran: Callable[[str], Ran]) -> None:
    report = ran("nightly_report")

    assert "At the cap:      parked, 18 model calls, 18 tool calls, $0.2592 of $0.25" in report.printed
    assert "It waits:        Spent $0.2592 of max_cost $0.25; raise max_cost to go on." in report.printed
    assert "After the raise: completed, 22 model calls, 21 tool calls, $0.3856 of $0.40" in report.printed
    assert report.rows("SELECT status, step_count, tool_call_count, cost FROM agentturns_turn") == [
        ("completed", 22, 21, 385_600_000)
    ]
    assert report.rows("SELECT cap, old, new, reason FROM agentturns_budgetchange") == [
        ("max_cost", "0.25", "0.40", "a busy day")
    ]


def test_the_report_reads_each_of_its_twenty_pages_once(ran: Callable[[str], Ran]) -> None:
    report = ran("nightly_report")
    pages = report.rows("SELECT json_extract(arguments, '$.page') FROM agentturns_toolcall WHERE name = 'read_sales'")

    assert sorted(page for (page,) in pages) == list(range(1, 21))
    assert "Pages read:      20 of 20, none twice: True" in report.printed


def test_the_report_adds_up_to_the_500_rows(ran: Callable[[str], Ran]) -> None:
    report = ran("nightly_report")
    summed = "SELECT region, SUM(pence) FROM nightly_report_sale GROUP BY region ORDER BY MIN(id)"
    reported = "SELECT key, value FROM nightly_report_report, json_each(totals)"

    assert report.rows("SELECT COUNT(*) FROM nightly_report_sale") == [(500,)]
    assert dict(report.rows(reported)) == dict(report.rows(summed))
    assert "Answer:          500 sales; north sold most." in report.printed


def test_a_report_asked_for_twice_in_a_night_is_one_turn(ran: Callable[[str], Ran]) -> None:
    assert ran("nightly_report").rows('SELECT COUNT(*), MIN("key") FROM agentturns_turn') == [(1, "report-2026-11-30")]


# -- tenant chat -------------------------------------------------------------------------------------------------------


def test_each_tenant_hears_of_its_own_invoices_only(ran: Callable[[str], Ran]) -> None:
    results = ran("tenant_chat").rows(
        "SELECT t.tenant, c.output_text FROM agentturns_toolcall c JOIN agentturns_turn t ON t.id = c.turn_id "
        "ORDER BY t.id"
    )

    assert results == [
        ("acme", '[{"number": "AC-1", "due_pence": 12000}, {"number": "AC-2", "due_pence": 700}]'),
        ("globex", '[{"number": "GL-1", "due_pence": 4200}]'),
    ]


def test_the_model_is_never_offered_the_tenant_as_an_argument(ran: Callable[[str], Ran]) -> None:
    tools = ran("tenant_chat").rows("SELECT DISTINCT tool_definitions FROM agentturns_turn")

    assert len(tools) == 1
    assert "tenant" not in tools[0][0]


def test_a_second_message_goes_on_in_the_session_and_knows_the_first(ran: Callable[[str], Ran]) -> None:
    chat = ran("tenant_chat")

    assert chat.rows("SELECT tenant, COUNT(DISTINCT session_id), COUNT(*) FROM agentturns_turn GROUP BY tenant") == [
        ("acme", 1, 2),
        ("globex", 1, 1),
    ]
    assert "You are welcome. We spoke of: Which invoices are open?" in chat.printed


def test_another_tenant_can_neither_read_a_turn_nor_write_to_its_session(ran: Callable[[str], Ran]) -> None:
    printed = ran("tenant_chat").printed

    assert "globex reads that turn:      404" in printed
    assert "globex writes to that session: 404" in printed


def test_the_chat_shows_the_language_of_the_request_and_the_spend_of_each_tenant(ran: Callable[[str], Ran]) -> None:
    printed = ran("tenant_chat").printed

    assert "Answer in the language 'de'." in printed
    assert "acme: 2 turns, 3 model calls, $0.0060" in printed
    assert "globex: 1 turns, 2 model calls, $0.0030" in printed
