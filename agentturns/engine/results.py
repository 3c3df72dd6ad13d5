"""What a tool returned or raised, as the row keeps it and as the model sees it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from agentturns.cleaning import clean_json, clean_text, require_json
from agentturns.conf import conf
from agentturns.definitions.tools import Halt
from agentturns.models.shown import shown_to_model
from agentturns.models.states import CallStatus


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How one call ended. ``halts`` says that it ends the turn, with ``text`` as the turn's answer."""

    status: str
    text: str
    result: Any = None
    error: str = ""
    halts: bool = False


def returned(value: Any, *, halts: bool = False) -> CallOutcome:
    """The outcome of a tool that returned ``value``: any JSON, or what pydantic can make JSON of."""
    plain = clean_text(str(value.answer)) if isinstance(value, Halt) else _as_json(value)
    return CallOutcome(
        CallStatus.COMPLETED, shown_to_model(plain), result=_stored(plain), halts=halts or isinstance(value, Halt)
    )


def raised(error: BaseException) -> CallOutcome:
    """The outcome of a tool that raised."""
    said = clean_text(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    return failed(f"Error: {said}")


def failed(text: str) -> CallOutcome:
    """A call that was run and failed; ``text`` is for the model."""
    shown = shown_to_model(text)
    return CallOutcome(CallStatus.FAILED, shown, error=shown)


def refused(text: str) -> CallOutcome:
    """A call that was not run; ``text`` is for the model."""
    shown = shown_to_model(text)
    return CallOutcome(CallStatus.REFUSED, shown, error=shown)


def timed_out(effect: str, seconds: float) -> CallOutcome:
    """A call past its deadline. Only an at-most-once effect may have happened all the same."""
    if effect == "transactional":
        return failed(f"Error: no result within {seconds:g} seconds; nothing was changed.")
    return failed(f"Outcome unknown: no result within {seconds:g} seconds; it may still have happened.")


def _as_json(value: Any) -> Any:
    try:
        return require_json(value, "result")
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return clean_json(to_jsonable_python(value, fallback=str, inf_nan_mode="strings"))
    except (ValueError, RecursionError):
        return clean_text(repr(value)[: conf.MAX_RESULT_CHARS])


def _stored(plain: Any) -> Any:
    try:
        size = len(json.dumps(plain, ensure_ascii=False).encode())
    except RecursionError:
        return f"(not stored: nested too deeply; the model was given its first {conf.MAX_RESULT_CHARS:,} characters)"
    if size <= conf.MAX_RESULT_BYTES:
        return plain
    return (
        f"(not stored: {size:,} bytes, above AGENTTURNS['MAX_RESULT_BYTES'] = {conf.MAX_RESULT_BYTES:,}; "
        f"the model was given its first {conf.MAX_RESULT_CHARS:,} characters)"
    )
