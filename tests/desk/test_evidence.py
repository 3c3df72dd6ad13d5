"""The demo's own judgement: it must see a repeated call or effect, else its table proves nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.core.mail import EmailMessage
from django.core.mail.backends.filebased import EmailBackend

from project.desk.demo.evidence import Evidence, Ran, emails_by_call, what_went_wrong
from project.desk.demo.report import resume_table, table

THEN = datetime(2026, 12, 1, tzinfo=UTC)


def step(index: int) -> Ran:
    return Ran(index, f"step {index}", "completed", 1, THEN, f"reply {index}")


def call(number: int, name: str) -> Ran:
    return Ran(number, name, "completed", 1, THEN, f"result {number}")


BEFORE = Evidence(
    status="parked (max_cost)",
    model_calls=(step(1), step(2)),
    tool_calls=(call(1, "find_order"), call(2, "issue_refund")),
    refunds=1,
    emails=0,
    spent="$0.06",
    limit="$0.05",
)
AFTER = replace(
    BEFORE,
    status="completed",
    model_calls=(*BEFORE.model_calls, step(3), step(4)),
    tool_calls=(*BEFORE.tool_calls, call(3, "notify_customer")),
    emails=1,
    spent="$0.09",
    limit="$0.20",
)


def test_a_clean_resume_has_nothing_wrong() -> None:
    assert what_went_wrong(BEFORE, AFTER) == ""


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (replace(AFTER, status="failed"), "it is failed"),
        (
            replace(AFTER, model_calls=(replace(step(1), outcome="another reply"), *AFTER.model_calls[1:])),
            "A model call from before the raise was made again or changed: step 1.",
        ),
        (replace(AFTER, model_calls=AFTER.model_calls[1:]), "A model call from before the raise"),
        (
            replace(AFTER, model_calls=(*AFTER.model_calls[:3], replace(step(4), times=2))),
            "The model was asked 5 times for 4 steps.",
        ),
        (replace(AFTER, model_calls=BEFORE.model_calls), "nothing was resumed"),
        (
            replace(AFTER, tool_calls=(call(1, "find_order"), replace(call(2, "issue_refund"), ended_at=None))),
            "A tool call from before the raise was made again or changed: issue_refund.",
        ),
        (replace(AFTER, refunds=2), "there are 2 refunds"),
        (replace(AFTER, emails=2), "there are 2 e-mails"),
        (replace(AFTER, emails=0), "there are 0 e-mails"),
        (replace(AFTER, tool_calls=(*AFTER.tool_calls, call(4, "notify_customer"))), "one call of notify_customer"),
    ],
)
def test_whatever_was_repeated_is_said(after: Evidence, sentence: str) -> None:
    assert sentence in what_went_wrong(BEFORE, after)


def test_emails_are_counted_by_the_call_that_sent_them(tmp_path: Path) -> None:
    for number in (7, 7, 9):
        message = EmailMessage("Hello", "Text", to=["ada@example.com"], headers={"X-Tool-Call": str(number)})
        EmailBackend(file_path=str(tmp_path)).send_messages([message])
    assert sorted(emails_by_call(tmp_path)) == [7, 7, 9]


def test_the_table_shows_both_looks_line_by_line() -> None:
    lines = resume_table(BEFORE, AFTER).splitlines()
    rows = {line[:12].strip(): line for line in lines if line[:12].strip()}
    assert list(rows)[1:] == ["status", "steps", "model calls", "tool effects", "spent", "limit"]
    assert rows["model calls"].split()[2:4] == ["2", "4"]
    assert "1 look-up, 1 refund" in rows["tool effects"]
    assert rows["spent"].split()[1:3] == ["$0.06", "$0.09"]
    assert rows["limit"].split()[1:3] == ["$0.05", "$0.20"]
    assert max(map(len, lines)) <= 110


def test_a_long_cell_is_broken_inside_its_column() -> None:
    shown = table([("a", "b"), ("word " * 10, "end " * 60)])
    assert all(len(line) <= 110 for line in shown.splitlines())
    assert shown.count("word") == 10
    assert shown.count("end") == 60
