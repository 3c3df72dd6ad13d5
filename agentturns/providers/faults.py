"""What a failed model call means: the tables by which errors of all vendors become one of four faults."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from agentturns.cleaning import clean_text
from agentturns.providers.base import Fault, ProviderError
from agentturns.providers.redaction import redact

# What the vendor names as the cause goes before the status: the same 429 is a limit that passes, or an empty account.
BY_SIGNAL: Final[dict[str, Fault]] = {
    # OpenAI, and servers that speak its wire
    "insufficient_quota": Fault.SPEND_LIMIT,
    "credit_balance_exhausted": Fault.SPEND_LIMIT,
    "organization_spend_limit_exceeded": Fault.SPEND_LIMIT,
    "project_spend_limit_exceeded": Fault.SPEND_LIMIT,
    "organization_usage_limit_exceeded": Fault.SPEND_LIMIT,
    "billing_hard_limit_reached": Fault.SPEND_LIMIT,
    "billing_not_active": Fault.SPEND_LIMIT,
    "rate_limit_exceeded": Fault.RATE_LIMITED,
    "slow_down": Fault.RATE_LIMITED,
    "server_error": Fault.TRANSIENT,
    "server_is_overloaded": Fault.TRANSIENT,
    "vector_store_timeout": Fault.TRANSIENT,
    "context_length_exceeded": Fault.PERMANENT,
    "invalid_prompt": Fault.PERMANENT,
    "model_not_found": Fault.PERMANENT,
    "invalid_api_key": Fault.PERMANENT,
    # Anthropic
    "billing_error": Fault.SPEND_LIMIT,
    "enforced_spend_limit_reached": Fault.SPEND_LIMIT,
    "contract_spend_limit_reached": Fault.SPEND_LIMIT,
    "linked_organization_spend_limit_reached": Fault.SPEND_LIMIT,
    "linked_organization_billing_unavailable": Fault.SPEND_LIMIT,
    "organization_on_hold": Fault.SPEND_LIMIT,
    "ramp_limit_exceeded": Fault.RATE_LIMITED,
    "rate_limit_error": Fault.RATE_LIMITED,
    "overloaded_error": Fault.TRANSIENT,
    "api_error": Fault.TRANSIENT,
    "timeout_error": Fault.TRANSIENT,
    "conflict_error": Fault.TRANSIENT,
    "authentication_error": Fault.PERMANENT,
    "permission_error": Fault.PERMANENT,
    "not_found_error": Fault.PERMANENT,
    "request_too_large": Fault.PERMANENT,
    # both
    "invalid_request_error": Fault.PERMANENT,
}

# Causes that are told in words only.
BY_PHRASE: Final = (
    (re.compile(r"credit balance|current quota|spend limit|spending limit", re.IGNORECASE), Fault.SPEND_LIMIT),
    (re.compile(r"request too large", re.IGNORECASE), Fault.PERMANENT),
)

BY_STATUS: Final[dict[int, Fault]] = {
    402: Fault.SPEND_LIMIT,
    408: Fault.TRANSIENT,
    409: Fault.TRANSIENT,
    425: Fault.TRANSIENT,
    429: Fault.RATE_LIMITED,
    499: Fault.TRANSIENT,
    501: Fault.PERMANENT,
}

# A gateway that gave up on a server may have left it working, and charging.
MAYBE_BILLED: Final = frozenset({408, 499, 504, 524})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Who is asked, as far as messages need it: the alias, where its key is set, and what must not be shown."""

    alias: str
    key_variable: str = ""
    secrets: tuple[str, ...] = ()

    def says(self, text: str) -> str:
        """``text`` from outside, fit to be shown."""
        return redact(text, self.secrets)


def refusal(endpoint: Endpoint, status: int, body: str, headers: Mapping[str, str]) -> ProviderError:
    """The error behind an HTTP answer that is no reply. ``body`` is its text, JSON or not."""
    error = _error_of(_json(body))
    if error is None and _looks_like_html(body):
        said = f"with a web page{_title(endpoint, body)} instead of JSON"
        return _error(endpoint, f"answered {status} {said}", _by_status(status), status, headers, code="html_page")
    message = _message(error) if error else body
    fault = classify(status, error or {}, message, headers)
    code = next(_signals(error or {}), "")
    return _error(endpoint, f"answered {status}{_told(endpoint, code, message)}", fault, status, headers, code=code)


def error_inside(endpoint: Endpoint, error: Any, *, billed: bool = True) -> ProviderError:
    """The error that came inside a reply with status 200. ``error`` is the vendor's error object, or its text."""
    found = _error_of({"error": error}) or {}
    message = _message(found)
    status = next((code for code in (found.get("code"), found.get("status")) if isinstance(code, int)), 200)
    fault = classify(status, found, message, {})
    code = next(_signals(found), "")
    told = _told(endpoint, code, message)
    return _error(endpoint, f"reported a failure{told}", fault, status, {}, code=code, billed=billed)


def unreadable(endpoint: Endpoint, body: str) -> ProviderError:
    """The error of a reply with status 200 that is not the JSON it should be."""
    if _looks_like_html(body):
        said = f"answered with a web page{_title(endpoint, body)} instead of JSON; check base_url"
        return _error(endpoint, said, Fault.TRANSIENT, 200, {}, code="html_page", billed=False)
    return _error(endpoint, "answered with something that is not JSON", Fault.TRANSIENT, 200, {}, code="invalid_json")


def malformed(endpoint: Endpoint, what: str) -> ProviderError:
    """The error of a JSON reply that lacks what a reply has; ``what`` says so, as in ``"has no choices"``."""
    return _error(endpoint, f"sent a reply that {what}", Fault.TRANSIENT, 200, {}, code="malformed_reply")


def cut_off(endpoint: Endpoint) -> ProviderError:
    """The error of a reply that ends without saying why, as one does whose connection broke."""
    said = "sent a reply without a reason for its end, so it may be cut"
    return _error(endpoint, said, Fault.TRANSIENT, 200, {}, code="no_stop_reason")


def missing_key(endpoint: Endpoint) -> ProviderError:
    """The error of an alias without an API key."""
    return ProviderError(f"{key_problem(endpoint)} Then retry the turn.", fault=Fault.PERMANENT, code="missing_key")


def key_problem(endpoint: Endpoint) -> str:
    """The sentence that an API key is missing, and where it goes."""
    return (
        f"The provider {endpoint.alias!r} has no API key: set the environment variable {endpoint.key_variable}, or "
        f"OPTIONS['api_key'] of AGENTTURNS['PROVIDERS'][{endpoint.alias!r}] (any text for a server that needs none)."
    )


def classify(status: int, error: Mapping[str, Any], message: str, headers: Mapping[str, str]) -> Fault:
    """The fault, by what the vendor says in words, then by the cause it names, then by the HTTP status."""
    if status in (200, 400, 402, 403, 429):
        for phrase, fault in BY_PHRASE:
            if phrase.search(message):
                return fault
    if status == 429 and headers.get("x-should-retry") == "false":
        return Fault.SPEND_LIMIT
    named = (BY_SIGNAL[signal] for signal in _signals(error) if signal in BY_SIGNAL)
    return next(named, _by_status(status))


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that the answer asks to wait (``Retry-After`` as seconds or as a date), None where it names none."""
    for name, scale in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / scale
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds())


def _by_status(status: int) -> Fault:
    if status in BY_STATUS:
        return BY_STATUS[status]
    return Fault.PERMANENT if 300 <= status < 500 else Fault.TRANSIENT


def _error(
    endpoint: Endpoint,
    said: str,
    fault: Fault,
    status: int,
    headers: Mapping[str, str],
    *,
    code: str = "",
    billed: bool | None = None,
) -> ProviderError:
    sentence = f"The provider {endpoint.alias!r} {said}"
    sentence += "" if sentence.endswith((".", "!", "?", "…")) else "."
    if hint := _hint(endpoint, fault, status):
        sentence = f"{sentence} {hint}"
    return ProviderError(
        sentence,
        fault=fault,
        code=clean_text(code or f"http_{status}")[:60],
        retry_after=retry_after(headers, datetime.now(UTC)),
        billed=(status == 200 or status in MAYBE_BILLED) if billed is None else billed,
    )


def _hint(endpoint: Endpoint, fault: Fault, status: int) -> str:
    if fault == Fault.SPEND_LIMIT:
        return "Add credit or raise the spend limit there, then retry the turn."
    if status == 401 and endpoint.key_variable:
        return f"Set {endpoint.key_variable} or OPTIONS['api_key'] to a valid key, then retry the turn."
    if status == 404:
        return "Check the model's name and base_url, then retry the turn."
    return ""


def _told(endpoint: Endpoint, code: str, message: str) -> str:
    named = f" ({endpoint.says(code)})" if code else ""
    return f"{named}: {endpoint.says(message)}" if message.strip() else named


def _signals(error: Mapping[str, Any]) -> Iterator[str]:
    """What an error object names as its cause, the most specific first."""
    details = error.get("details")
    named = details.get("error_code") if isinstance(details, Mapping) else None
    for signal in (named, error.get("code"), error.get("type")):
        if isinstance(signal, str) and signal:
            yield signal


def _error_of(body: Any) -> Mapping[str, Any] | None:
    """The error object of an answer, whichever of the usual shapes it has."""
    if not isinstance(body, Mapping):
        return None
    error = body.get("error", body)
    if isinstance(error, Mapping):
        return error
    return {"message": error} if isinstance(error, str) else {}


def _message(error: Mapping[str, Any]) -> str:
    message = error.get("message") or error.get("detail") or ""
    return message if isinstance(message, str) else json.dumps(message)


def _json(body: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _looks_like_html(body: str) -> bool:
    start = body.lstrip()[:200].lower()
    return start.startswith("<") and ("<html" in start or "<!doctype" in start or "<head" in start)


def _title(endpoint: Endpoint, body: str) -> str:
    found = re.search(r"<title[^>]*>(.*?)</title>", body[:10_000], re.IGNORECASE | re.DOTALL)
    return f" titled “{endpoint.says(found[1])}”" if found and found[1].strip() else ""
