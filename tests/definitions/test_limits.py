"""Caps as they are declared: what each takes, what is refused, what survives storage."""

from __future__ import annotations

import copy
import json
import pickle
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentturns import ConfigurationError, Limits
from agentturns.definitions.limits import CAPS, INHERIT, breach_policy, resolve

COUNTS = ("max_input_tokens", "max_new_input_tokens", "max_output_tokens", "max_tool_calls", "max_steps")


@pytest.mark.parametrize("given", [Decimal("0.25"), "0.25", " 0.25 "])
def test_money_is_a_decimal_or_text(given: Any) -> None:
    assert Limits(max_cost=given).max_cost == Decimal("0.25")


def test_money_may_be_a_whole_number() -> None:
    assert Limits(max_cost=2).max_cost == Decimal(2)


@pytest.mark.parametrize(
    ("caps", "said"),
    [
        ({"max_cost": 0.25}, "max_cost=0.25 is a float, but money is a Decimal, int or text; write Decimal('0.25')"),
        ({"max_cost": True}, "max_cost=True is a bool"),
        ({"max_cost": -1}, "max_cost=-1 is negative; a cap is 0 or more."),
        ({"max_cost": "-0.01"}, "is negative"),
        ({"max_cost": Decimal("NaN")}, "is not a finite amount; write an amount in USD such as 0.25."),
        ({"max_cost": "inf"}, "is not a finite amount"),
        ({"max_cost": "a lot"}, "max_cost='a lot' is not a number"),
        ({"max_cost": "0.0000000001"}, "has more than nine decimals"),
        ({"max_cost": "1e40"}, "is beyond $9,000,000,000"),
        ({"timeout": -1}, "timeout=-1 is negative"),
        ({"timeout": float("nan")}, "timeout=nan is not a finite number of seconds; use None for no limit."),
        ({"timeout": float("inf")}, "timeout=inf is not a finite number"),
        ({"timeout": "300"}, "timeout='300' is a str, but it is a number of seconds such as 300."),
        ({"timeout": True}, "timeout=True is a bool"),
        ({"timeout": 1e30}, "is too large"),
        *(({cap: -1}, f"{cap}=-1 is negative; a cap is 0 or more.") for cap in COUNTS),
        *(({cap: 2.0}, f"{cap}=2.0 is a float, but it is a whole number of ") for cap in COUNTS),
        *(({cap: True}, f"{cap}=True is a bool") for cap in COUNTS),
        *(({cap: 2**60}, "is too large; use None for no limit.") for cap in COUNTS),
        ({"on_breach": {"max_stepz": "park"}}, "on_breach names 'max_stepz', but the caps are max_input_tokens, "),
        ({"on_breach": {"max_steps": "stop"}}, "on_breach['max_steps'] is 'stop'; it is 'park' or 'fail'."),
        ({"on_breach": "park"}, "on_breach is 'park'; pass a dict such as {'max_steps': 'park'}."),
        ({"unpriced": "maybe"}, "unpriced is 'maybe'; it is 'park' or 'allow'."),
        ({"reserve": "best_case"}, "reserve is 'best_case'; it is None or 'worst_case'."),
    ],
)
def test_a_wrong_cap_is_refused_with_a_sentence(caps: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Limits(**caps)
    assert str(refused.value).startswith("Limits: ")
    assert said in str(refused.value)


def test_an_unknown_cap_in_a_mapping_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Limits.of({"max_costs": 1})
    assert str(refused.value) == (
        "Limits: unknown cap 'max_costs'; the caps are max_input_tokens, max_new_input_tokens, max_output_tokens, "
        "max_cost, timeout, max_tool_calls, max_steps."
    )


def test_limits_come_from_themselves_a_mapping_or_nothing() -> None:
    limits = Limits(max_steps=3)
    assert Limits.of(limits) is limits
    assert Limits.of({"max_steps": 3}) == limits
    assert Limits.of(None) == Limits()
    with pytest.raises(ConfigurationError, match=r"limits is 3; pass Limits\(…\) or a mapping of its arguments\."):
        Limits.of(3)  # type: ignore[arg-type]


def test_json_holds_only_what_was_given_and_money_as_exact_text() -> None:
    assert Limits().to_json() == {}
    assert Limits(max_cost=Decimal("0.10"), timeout=None, max_steps=0, on_breach={"max_steps": "park"}).to_json() == {
        "max_cost": "0.10",
        "timeout": None,
        "max_steps": 0,
        "on_breach": {"max_steps": "park"},
    }


CAP_VALUES = {
    "max_cost": st.decimals(0, 9_000_000_000, places=9, allow_nan=False),
    "timeout": st.one_of(st.integers(0, 2**53), st.floats(0, 1e12, allow_nan=False)),
    **{cap: st.integers(0, 2**53) for cap in COUNTS},
}
SETTINGS = {
    "on_breach": st.dictionaries(st.sampled_from(sorted(CAPS)), st.sampled_from(["park", "fail"])),
    "unpriced": st.sampled_from(["park", "allow"]),
    "reserve": st.sampled_from([None, "worst_case"]),
}


@given(
    st.fixed_dictionaries({}, optional={**{cap: st.none() | value for cap, value in CAP_VALUES.items()}, **SETTINGS})
)
def test_limits_survive_their_json(given: dict[str, Any]) -> None:
    limits = Limits(**given)
    assert Limits.of(json.loads(json.dumps(limits.to_json()))) == limits


def test_copies_and_pickles_still_tell_absent_from_none() -> None:
    limits = Limits(max_cost="0.25", timeout=None)
    for twin in (copy.copy(limits), copy.deepcopy(limits), pickle.loads(pickle.dumps(limits))):
        assert twin == limits
        assert twin.to_json() == {"max_cost": "0.25", "timeout": None}
        assert twin.max_steps is INHERIT


def test_an_absent_cap_inherits_zero_is_a_cap_and_none_switches_it_off() -> None:
    sources = ("turn", Limits(max_steps=0, timeout=None)), ("agent", Limits(max_steps=5, timeout=60, max_tool_calls=7))
    assert (resolve("max_steps", *sources).value, resolve("max_steps", *sources).source) == (0, "turn")
    assert (resolve("timeout", *sources).value, resolve("timeout", *sources).source) == (None, "turn")
    assert (resolve("max_tool_calls", *sources).value, resolve("max_tool_calls", *sources).source) == (7, "agent")
    assert (resolve("max_cost", *sources).value, resolve("max_cost", *sources).source) == (None, "")


def test_only_steps_fail_unless_a_source_says_otherwise() -> None:
    assert {cap for cap in CAPS if breach_policy(cap) == "fail"} == {"max_steps"}
    assert breach_policy("max_steps", Limits(), Limits(on_breach={"max_steps": "park"})) == "park"
    assert breach_policy(
        "max_cost", Limits(on_breach={"max_cost": "fail"}), Limits(on_breach={"max_cost": "park"})
    ) == ("fail")


@pytest.mark.parametrize(
    ("cap", "value", "shown"),
    [
        ("max_cost", Decimal("0.25"), "$0.25"),
        ("max_cost", Decimal("1234.5678"), "$1,234.5678"),
        ("max_cost", 0, "$0.00"),
        ("max_input_tokens", 1200, "1,200 tokens"),
        ("max_output_tokens", 1, "1 token"),
        ("timeout", 90, "90 seconds"),
        ("timeout", 90.0, "90 seconds"),
        ("timeout", 0.26, "0.3 seconds"),
        ("max_tool_calls", 6, "6 calls"),
        ("max_steps", 1, "1 step"),
    ],
)
def test_values_are_shown_as_people_read_them(cap: str, value: Any, shown: str) -> None:
    assert CAPS[cap].show(value) == shown
