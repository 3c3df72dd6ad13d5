"""One POST to a vendor through its SDK: once, by the clock, and the answer kept as text."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agentturns.cleaning import clean_text
from agentturns.providers.base import Fault, ProviderError
from agentturns.providers.faults import Endpoint, refusal, unreadable
from agentturns.providers.gathering import Gathering
from agentturns.providers.hang_up import HangUp
from agentturns.providers.sse import EventReader

CONNECT_SECONDS: Final = 10.0
# A reply that is all there needs no more than the end of its connection.
LINGER_SECONDS: Final = 1.0
REQUEST_ID_HEADERS: Final = ("x-request-id", "request-id")


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer: its body, as it came or put together from a stream, and the vendor's id of the request."""

    text: str
    request_id: str
    streamed: bool = False


def post(
    client: Any,
    path: str,
    body: Mapping[str, Any],
    *,
    endpoint: Endpoint,
    timeout: float,
    gathering: Gathering | None = None,
) -> Answer:
    """Send ``body`` as JSON to ``path`` with an SDK's client. Raises ``ProviderError`` for all but a 2xx answer.

    The SDK does the connection, the authentication and its headers. The body is encoded here, so that equal requests
    are equal bytes, and the answer is read here, so that it stays as the vendor wrote it and ``timeout`` (seconds)
    holds for the whole of it: an SDK's own time-out starts anew with every piece that arrives. ``gathering`` hears the
    events of an answer that is a stream; a server that was asked for one may still answer whole.
    """
    import httpx2

    deadline = time.monotonic() + timeout
    try:
        response = client.post(
            path,
            content=encode(body),
            cast_to=httpx2.Response,
            stream=True,
            options={"timeout": httpx2.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)), "max_retries": 0},
        )
        streamed = gathering is not None and "text/event-stream" in response.headers.get("content-type", "")
        raw = _read(response, deadline, gathering if streamed else None)
    except ProviderError as error:
        raise (gathering.failed(error) if gathering else error) from None
    except Exception as error:
        if gathering is None or not gathering.ended:
            # The vendor's exceptions hold the request with its key, so none is chained.
            late = isinstance(error, TimeoutError) or time.monotonic() >= deadline
            fault = _timed_out(endpoint, timeout) if late else _fault_behind(error, endpoint, timeout)
            raise (gathering.failed(fault) if gathering else fault) from None
        # The reply is all there; what broke is the connection after it.
        raw, streamed = b"", True
    request_id = clean_text(next((found for name in REQUEST_ID_HEADERS if (found := response.headers.get(name))), ""))
    if gathering is not None and streamed:
        return Answer(gathering.wire(), request_id, streamed=True)
    try:
        return Answer(raw.decode("utf-8-sig"), request_id)
    except UnicodeDecodeError:
        raise unreadable(endpoint, "") from None


def encode(body: Mapping[str, Any]) -> bytes:
    """The one JSON text of a body: compact, keys in their order, UTF-8."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _read(response: Any, deadline: float, gathering: Gathering | None) -> bytes:
    """The body, or nothing of it where ``gathering`` hears it. Raises ``TimeoutError`` past the deadline."""
    try:
        with HangUp(response) as hang_up:
            hang_up.at(deadline)
            if gathering is None:
                return b"".join(_pieces(response, deadline))
            _listen(gathering, _pieces(response, deadline), hang_up)
            return b""
    finally:
        response.close()


def _pieces(response: Any, deadline: float) -> Iterator[bytes]:
    for piece in response.iter_bytes():
        yield piece
        if time.monotonic() >= deadline:
            raise TimeoutError
    # Where only the end of the connection ends the body, having been hung up looks like that.
    if time.monotonic() >= deadline:
        raise TimeoutError


def _listen(gathering: Gathering, pieces: Iterator[bytes], hang_up: HangUp) -> None:
    reader = EventReader()
    try:
        for piece in pieces:
            was_finished = gathering.finished
            for data in reader.feed(piece):
                if not gathering.finished:
                    gathering.hear(data)
            if gathering.finished and not was_finished:
                hang_up.at(time.monotonic() + LINGER_SECONDS)
        for data in reader.rest():
            if not gathering.finished:
                gathering.hear(data)
    except UnicodeDecodeError:
        raise unreadable(gathering.endpoint, "") from None


def _fault_behind(error: Exception, endpoint: Endpoint, timeout: float) -> ProviderError:
    import httpx2

    response = getattr(error, "response", None)
    if response is not None:
        return refusal(endpoint, response.status_code, _text(response), response.headers)
    chain = _chain(error)
    if any(isinstance(link, httpx2.InvalidURL | httpx2.UnsupportedProtocol) for link in chain):
        return ProviderError(
            f"The provider {endpoint.alias!r} has a base_url that is no http address; correct it and retry the turn.",
            fault=Fault.PERMANENT,
            code="invalid_base_url",
        )
    if any(isinstance(link, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout) for link in chain):
        return ProviderError(
            f"The provider {endpoint.alias!r} cannot be reached: {endpoint.says(_cause(chain))}.",
            fault=Fault.TRANSIENT,
            code="unreachable",
        )
    if any(isinstance(link, httpx2.TimeoutException) for link in chain):
        return _timed_out(endpoint, timeout)
    if any(isinstance(link, httpx2.TransportError) for link in chain):
        return ProviderError(
            f"The connection to the provider {endpoint.alias!r} was lost: {endpoint.says(_cause(chain))}.",
            fault=Fault.TRANSIENT,
            code="connection_lost",
            billed=True,
        )
    return ProviderError(
        f"The provider {endpoint.alias!r} could not be asked: {endpoint.says(_cause(chain))}.",
        fault=Fault.PERMANENT,
        code="request_failed",
    )


def _timed_out(endpoint: Endpoint, timeout: float) -> ProviderError:
    return ProviderError(
        f"The provider {endpoint.alias!r} did not answer within {timeout:g} seconds.",
        fault=Fault.TRANSIENT,
        code="timeout",
        billed=True,
    )


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what caused it, outermost first."""
    chain = [error]
    while cause := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(cause)
    return chain


def _cause(chain: list[BaseException]) -> str:
    root = chain[-1]
    return f"{type(root).__name__}: {root}".rstrip(": .")


def _text(response: Any) -> str:
    try:
        return str(response.text)
    except Exception:  # the body of an error may break off as well; the status is enough
        return ""
