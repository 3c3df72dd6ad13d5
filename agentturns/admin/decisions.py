"""Decisions as POST buttons: cancel and retry a turn; approve, decline, answer, rerun and confirm a tool call."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseNotAllowed, HttpResponseRedirect
from django.utils.translation import gettext as _

from agentturns.admin.links import page_of
from agentturns.admin.read_only import ReadOnlyAdmin
from agentturns.exceptions import Conflict
from agentturns.models import ToolCall, Turn


class EndsAndRetries(ReadOnlyAdmin):
    """Part of the turn admin: the POST addresses ``cancel`` and ``retry``, each with an optional ``reason``."""

    def cancel_view(self, request: HttpRequest, turn_id: int) -> HttpResponse:
        """End the turn: at once where it waits, after the current call where it runs."""
        return self._act(request, turn_id, Turn.cancel)

    def retry_view(self, request: HttpRequest, turn_id: int) -> HttpResponse:
        """Take the turn up again where it stopped on a fault."""
        return self._act(request, turn_id, Turn.retry)

    def _act(self, request: HttpRequest, turn_id: int, verb: Callable[..., Turn]) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        turn = self.get_object(request, str(turn_id))
        if turn is None:
            return self.not_there(request, turn_id)
        try:
            verb(turn, by=request.user, reason=request.POST.get("reason", "").strip())
        except Conflict as conflict:
            self.message_user(request, str(conflict), messages.ERROR)
        else:
            self.message_user(request, _outcome(turn), messages.SUCCESS)
        return HttpResponseRedirect(page_of(request, self.admin_site, Turn, turn.pk))


class DecidesCalls(ReadOnlyAdmin):
    """Part of the tool call admin: the POST address ``decide``.

    ``decision`` is approve, decline, answer, rerun or confirm; ``reason``, ``text`` or ``result`` go with it. The
    answer leads back to the page that ``back`` names: ``turn`` or ``call``.
    """

    def decide_view(self, request: HttpRequest, call_id: int) -> HttpResponse:
        """Take one decision on one call."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        pages = [page for page in (Turn, ToolCall) if self._may_view(request, page)]
        if not pages:
            raise PermissionDenied
        decide = _DECISIONS.get(request.POST.get("decision", ""))
        if decide is None:
            return HttpResponseBadRequest(_("“decision” is one of %(known)s.") % {"known": ", ".join(_DECISIONS)})
        call = self.get_object(request, str(call_id))
        if call is None:
            return self.not_there(request, call_id)
        try:
            sentence = decide(call, request)
        except (Conflict, ValueError) as refusal:
            self.message_user(request, str(refusal), messages.ERROR)
        else:
            self.message_user(request, f"{sentence} {_outcome(call.turn)}", messages.SUCCESS)
        to_turn = Turn in pages and (request.POST.get("back") != "call" or ToolCall not in pages)
        model, pk = (Turn, call.turn_id) if to_turn else (ToolCall, call.pk)
        return HttpResponseRedirect(page_of(request, self.admin_site, model, pk))

    def _may_view(self, request: HttpRequest, model: Any) -> bool:
        site = self.admin_site
        return site.is_registered(model) and site.get_model_admin(model).has_view_permission(request)


def _approve(call: ToolCall, request: HttpRequest) -> str:
    call.approve(by=request.user, note=request.POST.get("note", "").strip())
    return _("The call of %(tool)s is approved.") % {"tool": call.name}


def _decline(call: ToolCall, request: HttpRequest) -> str:
    call.decline(by=request.user, reason=request.POST.get("reason", "").strip())
    return _("The call of %(tool)s is declined.") % {"tool": call.name}


def _answer(call: ToolCall, request: HttpRequest) -> str:
    call.answer(request.POST.get("text", ""), by=request.user)
    return _("The call of %(tool)s is answered.") % {"tool": call.name}


def _rerun(call: ToolCall, request: HttpRequest) -> str:
    call.rerun(by=request.user)
    return _("The call of %(tool)s will run again.") % {"tool": call.name}


def _confirm(call: ToolCall, request: HttpRequest) -> str:
    call.confirm(json_or_text(request.POST.get("result", "")), by=request.user)
    return _("The call of %(tool)s counts as done.") % {"tool": call.name}


_DECISIONS: dict[str, Callable[[ToolCall, HttpRequest], str]] = {
    "approve": _approve,
    "decline": _decline,
    "answer": _answer,
    "rerun": _rerun,
    "confirm": _confirm,
}


def json_or_text(written: str) -> Any:
    """What a person wrote as a tool's result: the JSON value it spells, else the text itself."""
    text = written.strip()
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _outcome(turn: Turn) -> str:
    """Where the turn stands after a verb, as a sentence."""
    if turn.cancel_requested_at is not None and not turn.is_finished:
        return _("Turn %(id)s stops after its current call.") % {"id": turn.pk}
    state = _("Turn %(id)s is %(status)s.") % {"id": turn.pk, "status": turn.get_status_display()}
    return f"{state} {turn.waiting_for}".strip()
