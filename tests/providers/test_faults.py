"""Every way a vendor says no becomes one of four faults, and a sentence without secrets."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agentturns.providers.base import Fault, ProviderError
from agentturns.providers.faults import Endpoint, refusal, retry_after, unreadable

HERE = Endpoint("openai", "OPENAI_API_KEY", ("my-very-own-key",))
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def refused(status: int, body: Any = "", **headers: str) -> ProviderError:
    text = body if isinstance(body, str) else json.dumps(body)
    return refusal(HERE, status, text, {name.replace("_", "-"): value for name, value in headers.items()})


def openai_error(code: Any = None, type: str | None = None, message: str = "Something.") -> dict[str, Any]:
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


def anthropic_error(type: str, message: str = "Something.", error_code: str | None = None) -> dict[str, Any]:
    details = {"error_code": error_code} if error_code else None
    return {"type": "error", "error": {"type": type, "message": message, "details": details}, "request_id": "req_1"}


TABLE = [
    # by status alone
    (400, "", Fault.PERMANENT),
    (401, "", Fault.PERMANENT),
    (402, "", Fault.SPEND_LIMIT),
    (403, "", Fault.PERMANENT),
    (404, "", Fault.PERMANENT),
    (408, "", Fault.TRANSIENT),
    (409, "", Fault.TRANSIENT),
    (413, "", Fault.PERMANENT),
    (422, "", Fault.PERMANENT),
    (429, "", Fault.RATE_LIMITED),
    (500, "", Fault.TRANSIENT),
    (501, "", Fault.PERMANENT),
    (502, "", Fault.TRANSIENT),
    (503, "", Fault.TRANSIENT),
    (504, "", Fault.TRANSIENT),
    (529, "", Fault.TRANSIENT),
    (302, "", Fault.PERMANENT),
    # OpenAI
    (429, openai_error("rate_limit_exceeded", "tokens"), Fault.RATE_LIMITED),
    (429, openai_error("slow_down"), Fault.RATE_LIMITED),
    (429, openai_error("insufficient_quota", "insufficient_quota"), Fault.SPEND_LIMIT),
    (429, openai_error("credit_balance_exhausted", "insufficient_quota"), Fault.SPEND_LIMIT),
    (429, openai_error("project_spend_limit_exceeded", "insufficient_quota"), Fault.SPEND_LIMIT),
    (429, openai_error("a_code_of_next_year", "insufficient_quota"), Fault.SPEND_LIMIT),
    (429, openai_error(message="You exceeded your current quota, please check your plan."), Fault.SPEND_LIMIT),
    (
        429,
        openai_error("rate_limit_exceeded", message="Request too large for gpt-5: limit 10, asked 20."),
        Fault.PERMANENT,
    ),
    (400, openai_error("context_length_exceeded", "invalid_request_error"), Fault.PERMANENT),
    (401, openai_error("invalid_api_key", "invalid_request_error"), Fault.PERMANENT),
    (404, openai_error("model_not_found", "invalid_request_error"), Fault.PERMANENT),
    (500, openai_error("server_error", "server_error"), Fault.TRANSIENT),
    (503, openai_error("server_is_overloaded"), Fault.TRANSIENT),
    # Anthropic
    (400, anthropic_error("invalid_request_error"), Fault.PERMANENT),
    (
        400,
        anthropic_error("invalid_request_error", "Your credit balance is too low to access the API."),
        Fault.SPEND_LIMIT,
    ),
    (401, anthropic_error("authentication_error"), Fault.PERMANENT),
    (402, anthropic_error("billing_error"), Fault.SPEND_LIMIT),
    (403, anthropic_error("permission_error"), Fault.PERMANENT),
    (404, anthropic_error("not_found_error"), Fault.PERMANENT),
    (413, anthropic_error("request_too_large"), Fault.PERMANENT),
    (429, anthropic_error("rate_limit_error"), Fault.RATE_LIMITED),
    (429, anthropic_error("rate_limit_error", error_code="ramp_limit_exceeded"), Fault.RATE_LIMITED),
    (429, anthropic_error("rate_limit_error", error_code="enforced_spend_limit_reached"), Fault.SPEND_LIMIT),
    (500, anthropic_error("api_error"), Fault.TRANSIENT),
    (504, anthropic_error("timeout_error"), Fault.TRANSIENT),
    (529, anthropic_error("overloaded_error"), Fault.TRANSIENT),
    (200, anthropic_error("overloaded_error"), Fault.TRANSIENT),
    # compatible servers
    (404, {"error": "model 'x' not found"}, Fault.PERMANENT),
    (429, {"detail": "Too many requests"}, Fault.RATE_LIMITED),
    (502, "<html><head><title>502 Bad Gateway</title></head></html>", Fault.TRANSIENT),
    (503, "upstream connect error", Fault.TRANSIENT),
    (400, ["odd"], Fault.PERMANENT),
]


@pytest.mark.parametrize(("status", "body", "fault"), TABLE)
def test_each_refusal_is_one_fault(status: int, body: Any, fault: Fault) -> None:
    assert refused(status, body).fault == fault


def test_a_vendor_that_says_not_to_retry_a_429_means_its_spend_limit() -> None:
    assert refused(429, anthropic_error("rate_limit_error"), x_should_retry="false").fault == Fault.SPEND_LIMIT
    assert refused(429, anthropic_error("rate_limit_error"), x_should_retry="true").fault == Fault.RATE_LIMITED


@pytest.mark.parametrize(("status", "billed"), [(400, False), (429, False), (500, False), (529, False), (504, True)])
def test_only_a_gateway_that_gave_up_may_have_let_work_be_charged(status: int, billed: bool) -> None:
    assert refused(status).billed is billed


def test_the_code_is_the_most_specific_name_there_is() -> None:
    assert refused(429, openai_error("project_spend_limit_exceeded", "insufficient_quota")).code == (
        "project_spend_limit_exceeded"
    )
    assert refused(429, anthropic_error("rate_limit_error", error_code="ramp_limit_exceeded")).code == (
        "ramp_limit_exceeded"
    )
    assert refused(429, anthropic_error("rate_limit_error")).code == "rate_limit_error"
    assert refused(503).code == "http_503"
    assert len(refused(400, openai_error("x" * 200)).code) == 60


SENTENCES = [
    (
        refused(429, openai_error("slow_down", message="Slow down.")),
        "The provider 'openai' answered 429 (slow_down): Slow down.",
    ),
    (
        refused(402, "Pay first"),
        "The provider 'openai' answered 402: Pay first. "
        "Add credit or raise the spend limit there, then retry the turn.",
    ),
    (
        refused(401, openai_error("invalid_api_key", message="Wrong key.")),
        "The provider 'openai' answered 401 (invalid_api_key): Wrong key. "
        "Set OPENAI_API_KEY or OPTIONS['api_key'] to a valid key, then retry the turn.",
    ),
    (
        refused(404),
        "The provider 'openai' answered 404. Check the model's name and base_url, then retry the turn.",
    ),
    (
        refused(502, "<!DOCTYPE html><html><title>502 Bad\n Gateway</title><p>nginx</p></html>"),
        "The provider 'openai' answered 502 with a web page titled “502 Bad Gateway” instead of JSON.",
    ),
    (
        unreadable(HERE, "<html><title>Sign in</title></html>"),
        "The provider 'openai' answered with a web page titled “Sign in” instead of JSON; check base_url.",
    ),
    (unreadable(HERE, '{"id": "resp_'), "The provider 'openai' answered with something that is not JSON."),
]


@pytest.mark.parametrize(("error", "sentence"), SENTENCES)
def test_people_are_told_what_happened_and_what_to_do(error: ProviderError, sentence: str) -> None:
    assert str(error) == sentence


def test_a_web_page_was_not_billed_and_broken_json_may_have_been() -> None:
    assert not unreadable(HERE, "<html></html>").billed
    assert unreadable(HERE, '{"id": "resp_').billed


LEAKS = [
    "Incorrect API key provided: my-very-own-key.",
    "Incorrect API key provided: sk-proj-abcdefgh12345678.",
    "Incorrect API key provided: sk-ant-ab**********************wxyz.",
    "Header was Bearer abcdefgh12345678",
    "See https://user:password@example.org/path",
]


@pytest.mark.parametrize("message", LEAKS)
def test_no_key_that_a_vendor_repeats_reaches_the_sentence(message: str) -> None:
    sentence = str(refused(401, openai_error("invalid_api_key", message=message)))
    for secret in ("my-very-own-key", "abcdefgh", "sk-ant", "wxyz", "password"):
        assert secret not in sentence
    assert "answered 401" in sentence


HARMLESS = [
    "Incorrect API key provided, see your settings.",
    "The limit token_limit_exceeded was reached.",
    "Bearer authentication is required.",
    "This is a risk-based decision.",
]


@pytest.mark.parametrize("message", HARMLESS)
def test_words_that_only_sound_like_a_key_stay(message: str) -> None:
    assert message in str(refused(400, openai_error(message=message)))


def test_a_long_message_is_cut_and_a_dirty_one_cleaned() -> None:
    sentence = str(refused(400, openai_error(message="line\none\x00\ud800 " + "word " * 1000)))
    assert len(sentence) < 700 and "\n" not in sentence and "\x00" not in sentence
    assert sentence.encode()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "Mon, 30 Nov 2026 12:01:30 GMT"}, 90.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Mon, 30 Nov 2026 12:01:30 -0000"}, 90.0),
        ({"retry-after": "259200"}, 259200.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
    ],
)
def test_a_wait_is_read_as_seconds_or_as_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


def test_a_date_to_wait_for_is_measured_from_now() -> None:
    date = (datetime.now(UTC) + timedelta(hours=1)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    wait = refused(429, retry_after=date).retry_after
    assert wait is not None and 3500 < wait <= 3600
