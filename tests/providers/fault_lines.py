"""The fault table as signals on the wire, and what shall come of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.providers.kinds import completion, message, response, said_item, text_block
from tests.providers.streams import as_stream, event
from tests.wire_server import Answered, answer, stream

WHOLE: dict[str, dict[str, Any]] = {
    "responses": response(said_item("It left.")),
    "chat": completion({"content": "It left."}),
    "messages": message(text_block("It left."), stop_reason="end_turn"),
}


@dataclass(frozen=True)
class Line:
    """One signal and what comes of it.

    ``wait`` is the least wait in seconds, None for a turn that parks at once; ``presumed`` says whether the attempt
    counts as billed; ``advice`` is told to the person.
    """

    name: str
    flavour: str
    given: Answered
    code: str
    wait: float | None
    presumed: bool
    advice: str


def waits(
    name: str, flavour: str, given: Answered, code: str, least: float = 1.0, *, presumed: bool = False, advice: str = ""
) -> Line:
    return Line(name, flavour, given, code, least, presumed, advice)


def parks(name: str, flavour: str, given: Answered, code: str, advice: str = "", *, presumed: bool = False) -> Line:
    return Line(name, flavour, given, code, None, presumed, advice)


def refused(status: int, body: Any = "", **headers: str) -> Answered:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return answer(body, status=status, headers={"Content-Type": "application/json", **named})


def openai(status: int, code: str | None, said: str = "Something.", **headers: str) -> Answered:
    return refused(status, {"error": {"message": said, "type": None, "param": None, "code": code}}, **headers)


def anthropic(status: int, type: str, said: str = "Something.", detail: str = "", **headers: str) -> Answered:
    details = {"error_code": detail} if detail else None
    return refused(status, {"type": "error", "error": {"type": type, "message": said, "details": details}}, **headers)


def failed(code: str) -> Answered:
    return answer(response(status="failed", error={"code": code, "message": "Oops."}, usage=None))


CREDIT = "Add credit or raise the spend limit there, then retry the turn."
OPENAI_KEY = "Set OPENAI_API_KEY or OPTIONS['api_key'] to a valid key, then retry the turn."
ANTHROPIC_KEY = "Set ANTHROPIC_API_KEY or OPTIONS['api_key'] to a valid key, then retry the turn."
NAME = "Check the model's name and base_url, then retry the turn."
DAYS = "It asks to wait 259,200 seconds, above the ceiling of 900."
QUOTA = "You exceeded your current quota, please check your plan."
TOO_LARGE = "Request too large for gpt-4.1."
BALANCE = "Your credit balance is too low."
SPENT = "enforced_spend_limit_reached"
PAGE = "<html><head><title>Bad Gateway</title></head></html>"
WEB = {"Content-Type": "text/html"}
BUSY = event({"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}}, "error")
BEGUN = event({"type": "response.created", "response": {}})
BROKEN_OFF = as_stream("messages", WHOLE["messages"]).split('data: {"type": "message_delta"')[0]
ENDLESS = {**WHOLE["messages"], "stop_reason": None, "usage": {}}

PASSING = [
    waits("408", "chat", refused(408), "http_408", presumed=True),
    waits("409", "responses", refused(409), "http_409"),
    waits("425", "chat", refused(425), "http_425"),
    waits("429", "chat", refused(429), "http_429"),
    waits("429 in seconds", "messages", anthropic(429, "rate_limit_error", Retry_After="7"), "rate_limit_error", 7),
    waits("429 in milliseconds", "responses", openai(429, "slow_down", retry_after_ms="2500"), "slow_down", 2.5),
    waits("429 with the longest wait", "chat", refused(429, Retry_After="900"), "http_429", 900),
    waits("429 by name", "responses", openai(429, "rate_limit_exceeded"), "rate_limit_exceeded"),
    waits("429 ramp", "messages", anthropic(429, "a", detail="ramp_limit_exceeded"), "ramp_limit_exceeded"),
    waits("500", "responses", openai(500, "server_error"), "server_error"),
    waits("500 Anthropic", "messages", anthropic(500, "api_error"), "api_error"),
    waits("502 web page", "chat", refused(502, PAGE), "html_page"),
    waits("503 without a body", "chat", refused(503), "http_503"),
    waits(
        "503 with a wait", "responses", openai(503, "server_is_overloaded", Retry_After="3"), "server_is_overloaded", 3
    ),
    waits("504", "messages", anthropic(504, "timeout_error"), "timeout_error", presumed=True),
    waits("524", "chat", refused(524), "http_524", presumed=True),
    waits("529", "messages", anthropic(529, "overloaded_error"), "overloaded_error"),
]

TO_BE_PAID = [
    parks("402", "chat", refused(402), "http_402", CREDIT),
    parks("402 Anthropic", "messages", anthropic(402, "billing_error"), "billing_error", CREDIT),
    parks("429 quota", "responses", openai(429, "insufficient_quota"), "insufficient_quota", CREDIT),
    parks("429 quota in words", "chat", openai(429, None, QUOTA), "http_429", CREDIT),
    parks("429 quota, wait", "chat", openai(429, "insufficient_quota", Retry_After="5"), "insufficient_quota", CREDIT),
    parks("429 spend limit", "messages", anthropic(429, "rate_limit_error", detail=SPENT), SPENT, CREDIT),
    parks("429, no retry", "messages", anthropic(429, "x_error", x_should_retry="false"), "x_error", CREDIT),
    parks("400 balance", "messages", anthropic(400, "invalid_request_error", BALANCE), "invalid_request_error", CREDIT),
]

PERMANENT = [
    parks("400", "responses", openai(400, "invalid_prompt"), "invalid_prompt"),
    parks("400 context", "chat", openai(400, "context_length_exceeded"), "context_length_exceeded"),
    parks("401", "responses", openai(401, "invalid_api_key"), "invalid_api_key", OPENAI_KEY),
    parks("401 Anthropic", "messages", anthropic(401, "authentication_error"), "authentication_error", ANTHROPIC_KEY),
    parks("403", "messages", anthropic(403, "permission_error"), "permission_error"),
    parks("404", "chat", refused(404, {"error": "model 'x' not found"}), "http_404", NAME),
    parks("413", "messages", anthropic(413, "request_too_large"), "request_too_large"),
    parks("422", "chat", refused(422, {"detail": "Unknown field."}), "http_422"),
    parks("429 too large", "responses", openai(429, "rate_limit_exceeded", TOO_LARGE), "rate_limit_exceeded"),
    parks("302", "chat", refused(302), "http_302"),
    parks("429 with a wait of days", "chat", refused(429, Retry_After="259200"), "http_429", DAYS),
]

INSIDE_200 = [
    waits("web page", "responses", answer(PAGE, headers=WEB), "html_page", advice="check base_url"),
    waits("nothing", "chat", answer(b""), "invalid_json", presumed=True),
    waits("no JSON", "messages", answer("{oops"), "invalid_json", presumed=True),
    waits("error by number", "chat", answer({"error": {"code": 503, "message": "Busy."}}), "http_503", presumed=True),
    waits("failed", "responses", failed("server_error"), "server_error", presumed=True),
    waits("no choices", "chat", answer({"choices": []}), "malformed_reply", presumed=True),
    waits("no stop reason", "messages", answer(ENDLESS), "no_stop_reason", presumed=True),
    parks(
        "error of a spend limit", "chat", openai(200, "insufficient_quota"), "insufficient_quota", CREDIT, presumed=True
    ),
    parks("failed for good", "responses", failed("invalid_prompt"), "invalid_prompt", presumed=True),
]

BREAKING = [
    waits("reply cut", "responses", answer(WHOLE["responses"], cut_at=20), "connection_lost", presumed=True),
    waits("stream without an end", "responses", stream(BEGUN), "no_stop_reason", presumed=True),
    waits(
        "stream cut",
        "chat",
        stream(as_stream("chat", WHOLE["chat"]), cut_at=300, sized=True),
        "connection_lost",
        presumed=True,
    ),
    waits("stream overloaded at once", "messages", stream(BUSY), "overloaded_error"),
    waits("stream overloaded midway", "messages", stream(BROKEN_OFF + BUSY), "overloaded_error", presumed=True),
    waits("stream with something else", "chat", stream("data: {oops\n\n"), "invalid_json", presumed=True),
]

TABLE = [*PASSING, *TO_BE_PAID, *PERMANENT, *INSIDE_200, *BREAKING]
