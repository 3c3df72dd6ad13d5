"""Figures and texts as an operator reads them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError
from django.utils import translation

from agentturns.admin.budget_changes import shown_value
from agentturns.admin.budget_form import parse_number
from agentturns.admin.formatting import excerpt, json_excerpt, one_line, progress, seconds, visible


@pytest.mark.parametrize(
    ("language", "text", "number"),
    [
        ("en", "0.50", "0.50"),
        ("en", "1250", "1250"),
        ("en", "1.000", "1.000"),
        ("de", "0,50", "0.50"),
        ("de", "0.50", "0.50"),
        ("de", "0.125", "0.125"),
        ("de", "1,000", "1.000"),
        ("fr", "12,5", "12.5"),
    ],
)
def test_a_number_is_read_in_the_language_of_the_page(language: str, text: str, number: str) -> None:
    with translation.override(language):
        assert parse_number(text) == Decimal(number)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "0,50"),
        ("en", "1,000"),
        ("en", "1,000.50"),
        ("en", "1 000"),
        ("de", "1.000"),
        ("de", "12.000"),
        ("de", "1.000,50"),
        ("fr", "1\u202f000"),
        ("en", ""),
        ("en", "."),
        ("en", ".5"),
        ("en", "1."),
        ("en", "+1"),
        ("en", "-1"),
        ("en", "1e5"),
        ("en", "١"),
        ("en", "1_000"),
        ("en", "Infinity"),
    ],
)
def test_a_number_that_can_be_read_two_ways_or_none_is_refused(language: str, text: str) -> None:
    with translation.override(language), pytest.raises(ValidationError):
        parse_number(text)


@pytest.mark.parametrize(
    ("spent", "limit", "bar"),
    [
        (Decimal("0.1"), Decimal("0.4"), 'progress" max="0.4" value="0.1"'),
        (Decimal("0.5"), Decimal("0.4"), 'progress--over" max="0.4" value="0.4"'),
        (3, 3, 'progress--over" max="3" value="3"'),
        (0, 0, 'progress--over" max="1" value="1"'),
        (5, 0, 'progress--over" max="1" value="1"'),
        (1e-7, 300, 'progress" max="300" value="0.0000001"'),
    ],
)
def test_the_bar_never_leaves_its_track(spent: Decimal, limit: Decimal, bar: str) -> None:
    with translation.override("de"):
        assert bar in progress(spent, limit, "Cost")


def test_without_a_limit_there_is_no_bar() -> None:
    assert progress(5, None, "Cost") == ""


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(0, "0.0 s"), (0.44, "0.4 s"), (59.96, "1 min 0 s"), (200, "3 min 20 s"), (7_500, "2 h 5 min"), (-1, "0.0 s")],
)
def test_seconds_are_read_in_their_largest_unit(amount: float, shown: str) -> None:
    assert seconds(amount) == shown


def test_invisible_characters_are_written_out_and_letters_are_left_alone() -> None:
    assert visible("a\u202eb\u200bc\x00\x7f") == r"a\u202eb\u200bc\u0000\u007f"
    assert visible("Zoë שלום 日本\n\t") == "Zoë שלום 日本\n\t"


def test_a_cut_text_knows_its_whole_length() -> None:
    cut = excerpt("abcdef", 4)
    assert (cut.text, cut.length, cut.cut) == ("abcd", 6, True)
    assert not excerpt("abcd", 4).cut
    assert json_excerpt({"a": "ü"}, None).text == '{\n  "a": "ü"\n}'


def test_one_line_keeps_the_start_of_a_long_text() -> None:
    assert one_line("a\n  b" + "c" * 1_000_000, 6) == "a bcc…"


@pytest.mark.parametrize(
    ("cap", "value", "shown"),
    [
        ("max_cost", "0.5", "$0.50"),
        ("max_steps", "1200", "1,200 steps"),
        ("timeout", "2.5", "2.5 seconds"),
        ("max_cost", "", "no limit"),
        ("unpriced", "allow", "allow"),
        ("max_cost", "odd", "odd"),
    ],
)
def test_a_stored_cap_value_is_shown_as_people_read_it(cap: str, value: str, shown: str) -> None:
    assert shown_value(cap, value) == shown
