"""Raising a budget and resuming: for one turn from its page, for several from the list; and lowering one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.forms import BoundField
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from agentturns.admin.budget_form import BudgetForm
from agentturns.admin.budget_panel import (
    CAP_ORDER,
    CapFigures,
    all_cap_figures,
    held_by_budget,
    reason_words,
    unpriced_stops,
)
from agentturns.admin.links import url_of
from agentturns.admin.read_only import ReadOnlyAdmin
from agentturns.admin.ways_on import RAISE
from agentturns.definitions.limits import CAPS
from agentturns.exceptions import Conflict, InvalidBudget
from agentturns.models import Turn
from agentturns.money.budget import UNPRICED

MOST_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class CapRow:
    """One line of the form for one turn: today's figures beside the field for the new value."""

    figures: CapFigures
    field: BoundField


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One line of the table of several turns: where the turn stands and its figures for each cap shown."""

    turn: Turn
    url: str
    reason: str
    can_be_raised: bool
    figures: Sequence[CapFigures]


class RaisesBudgets(ReadOnlyAdmin):
    """Part of the turn admin: the list action ``raise_budget``, the pages ``raise`` and ``lower``."""

    def has_raise_budget_permission(self, request: HttpRequest) -> bool:
        """Whether the user may raise and lower budgets."""
        return request.user.has_perm(RAISE)

    def raise_view(self, request: HttpRequest, turn_id: int) -> HttpResponse:
        """The form that raises one turn's budget and resumes it."""
        turn = self._turn_to_change(request, turn_id)
        if turn is None:
            return self.not_there(request, turn_id)
        if request.method != "POST" and not held_by_budget(turn):
            self.message_user(request, _not_waiting(turn), messages.WARNING)
            return self._back_to(turn)
        figures = [row for row in all_cap_figures(turn, _changes(turn)) if row.limit is not None]
        # What was on offer when the page was shown stays in the form, so that a lost race is told as one.
        offer_unpriced = unpriced_stops(turn) or UNPRICED in request.POST
        form = BudgetForm(request.POST or None, caps=[row.cap for row in figures], offer_unpriced=offer_unpriced)
        _point_at(form, figures)
        if request.method == "POST" and form.is_valid() and self._raise_one(request, turn, form):
            return self._back_to(turn)
        context = {"title": _("Raise the budget of turn %(id)s and resume it") % {"id": turn.pk}}
        return self._budget_page(request, turn, form, figures, "raise.html", context)

    def lower_view(self, request: HttpRequest, turn_id: int) -> HttpResponse:
        """The form that lowers caps of one unfinished turn."""
        turn = self._turn_to_change(request, turn_id)
        if turn is None:
            return self.not_there(request, turn_id)
        if request.method != "POST" and turn.is_finished:
            self.message_user(request, _over(turn), messages.WARNING)
            return self._back_to(turn)
        figures = all_cap_figures(turn, _changes(turn))
        form = BudgetForm(request.POST or None, caps=[row.cap for row in figures])
        if request.method == "POST" and form.is_valid() and self._lower_one(request, turn, form):
            return self._back_to(turn)
        context = {"title": _("Lower the budget of turn %(id)s") % {"id": turn.pk}}
        return self._budget_page(request, turn, form, figures, "lower.html", context)

    @admin.action(permissions=["raise_budget"], description=gettext_lazy("Raise budget and resume"))
    def raise_budget(self, request: HttpRequest, queryset: QuerySet) -> HttpResponse | None:
        """The form that raises several turns; what was confirmed is exactly what was shown."""
        confirmed = bool(request.POST.get("post"))
        turns = self._selected(request, queryset, confirmed)
        if turns is None:
            return None
        caps, offer_unpriced = _caps_of(turns)
        offer_unpriced = offer_unpriced or UNPRICED in request.POST
        form = BudgetForm(request.POST if confirmed else None, caps=caps, offer_unpriced=offer_unpriced)
        if confirmed and form.is_valid():
            self._raise_each(request, turns, form)
            return HttpResponseRedirect(request.get_full_path())
        return self._selected_page(request, turns, form)

    def _turn_to_change(self, request: HttpRequest, turn_id: int) -> Turn | None:
        if not (self.has_view_permission(request) and self.has_raise_budget_permission(request)):
            raise PermissionDenied
        return self.get_object(request, str(turn_id))

    def _back_to(self, turn: Turn) -> HttpResponseRedirect:
        return HttpResponseRedirect(url_of(self.admin_site, "agentturns_turn_change", turn.pk))

    def _raise_one(self, request: HttpRequest, turn: Turn, form: BudgetForm) -> bool:
        """Whether the form is done with; False shows it again with the refusal."""
        try:
            sentence = _raised(turn, form, request.user)
        except InvalidBudget as refusal:
            form.show_refusal(refusal.cap, _why(refusal, turn))
            return False
        except Conflict as conflict:
            self.message_user(request, str(conflict), messages.ERROR)
        else:
            self.message_user(request, sentence, messages.SUCCESS)
        return True

    def _lower_one(self, request: HttpRequest, turn: Turn, form: BudgetForm) -> bool:
        changes = form.changes()
        try:
            turn.lower_budget(by=request.user, reason=form.cleaned_data["reason"], **changes)
        except InvalidBudget as refusal:
            form.show_refusal(refusal.cap, str(refusal))
            return False
        except Conflict as conflict:
            self.message_user(request, str(conflict), messages.ERROR)
        else:
            sentence = _("Turn %(id)s is lowered: %(caps)s. It counts from its next step on.")
            self.message_user(request, sentence % {"id": turn.pk, "caps": _shown(changes)}, messages.SUCCESS)
        return True

    def _raise_each(self, request: HttpRequest, turns: Iterable[Turn], form: BudgetForm) -> None:
        raised = []
        for turn in turns:
            try:
                sentence = _raised(turn, form, request.user)
            except (InvalidBudget, Conflict) as refusal:
                refused = _("Turn %(id)s is not raised. %(why)s") % {"id": turn.pk, "why": _why(refusal, turn)}
                self.message_user(request, refused, messages.ERROR)
            else:
                raised.append(sentence)
        for sentence in raised:
            self.message_user(request, sentence, messages.SUCCESS)

    def _selected(self, request: HttpRequest, queryset: QuerySet, confirmed: bool) -> list[Turn] | None:
        """The turns chosen in the list, newest first; None, with a message, where there are too many.

        They are looked up by id, not through the list's filters: a turn that somebody else moved on meanwhile no
        longer matches them, and the user must be told so.
        """
        across = request.POST.get("select_across") == "1" and not confirmed
        rows = self.get_queryset(request)
        chosen = queryset if across else rows.filter(pk__in=request.POST.getlist(ACTION_CHECKBOX_NAME))
        turns = list(rows.filter(pk__in=chosen.order_by("-pk").values_list("pk", flat=True)[: MOST_AT_ONCE + 1]))
        if len(turns) > MOST_AT_ONCE:
            sentence = _("At most %(most)s turns are raised at once; filter the list or choose fewer.")
            self.message_user(request, sentence % {"most": MOST_AT_ONCE}, messages.WARNING)
            return None
        return sorted(turns, key=lambda turn: -turn.pk)

    def _selected_page(self, request: HttpRequest, turns: Sequence[Turn], form: BudgetForm) -> HttpResponse:
        rows = [
            TurnRow(
                turn=turn,
                url=url_of(self.admin_site, "agentturns_turn_change", turn.pk),
                reason=reason_words(turn),
                can_be_raised=held_by_budget(turn),
                figures=[row for row in all_cap_figures(turn) if row.cap in form.caps],
            )
            for turn in turns
        ]
        context = {
            "title": ngettext(
                "Raise the budget of %(count)d turn and resume it",
                "Raise the budgets of %(count)d turns and resume them",
                len(turns),
            )
            % {"count": len(turns)},
            "rows": rows,
            "headings": [row.label for row in rows[0].figures] if rows else [],
            "can_be_raised": sum(row.can_be_raised for row in rows),
            "fields": [form[name] for name in form.caps],
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
        }
        return self._page(request, form, "raise_selected.html", context)

    def _budget_page(
        self,
        request: HttpRequest,
        turn: Turn,
        form: BudgetForm,
        figures: Iterable[CapFigures],
        template: str,
        context: dict[str, Any],
    ) -> HttpResponse:
        context |= {
            "original": turn,
            "turn": turn,
            "back": url_of(self.admin_site, "agentturns_turn_change", turn.pk),
            "rows": [CapRow(row, form[row.cap]) for row in figures],
        }
        return self._page(request, form, template, context)

    def _page(self, request: HttpRequest, form: BudgetForm, template: str, context: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name  # read by {% url %}
        return TemplateResponse(
            request,
            f"admin/agentturns/turn/{template}",
            {
                **self.admin_site.each_context(request),
                "opts": self.opts,
                "media": self.media,
                "form": form,
                "unpriced_field": form[UNPRICED] if UNPRICED in form.fields else None,
                **context,
            },
        )


def _point_at(form: BudgetForm, figures: Iterable[CapFigures]) -> None:
    """Say in each empty field what its value must pass, and start at the cap that holds the turn up."""
    for row in figures:
        attrs = form.fields[row.cap].widget.attrs
        most = row.spent if row.limit is None or row.spent > row.limit else row.limit
        attrs["placeholder"] = _("above %(most)s") % {"most": CAPS[row.cap].show(most)}
        if row.stops:
            attrs["autofocus"] = True


def _changes(turn: Turn) -> list[Any]:
    return list(turn.budget_changes.order_by("-pk")[:50])


def _caps_of(turns: Iterable[Turn]) -> tuple[list[str], bool]:
    """The caps that limit any of ``turns``, money first, and whether one waits for a price."""
    limited = {cap for turn in turns for cap in CAP_ORDER if turn.limit(cap) is not None}
    return [cap for cap in CAP_ORDER if cap in limited], any(unpriced_stops(turn) for turn in turns)


def _raised(turn: Turn, form: BudgetForm, by: Any) -> str:
    """Raise one turn; the sentence that says so. Raises ``InvalidBudget`` or ``Conflict``."""
    changes = form.changes()
    turn.raise_budget(by=by, reason=form.cleaned_data["reason"], **changes)
    return _("Turn %(id)s is raised and resumed: %(caps)s.") % {"id": turn.pk, "caps": _shown(changes)}


def _why(refusal: Exception, turn: Turn) -> str:
    """The refusal as a sentence that speaks of this form, where the verb's own speaks of code."""
    if isinstance(refusal, InvalidBudget) and refusal.cap == UNPRICED:
        return ngettext(
            "%(count)d step has no known price, so its cost limit cannot be kept; tick “Allow steps without a known "
            "price” to let the turn go on without it.",
            "%(count)d steps have no known price, so its cost limit cannot be kept; tick “Allow steps without a known "
            "price” to let the turn go on without it.",
            turn.unpriced_steps,
        ) % {"count": turn.unpriced_steps}
    return str(refusal)


def _shown(changes: dict[str, Any]) -> str:
    """The new values as understood, so that a slip of the pen is seen."""
    return ", ".join(f"{cap} {CAPS[cap].show(value) if cap in CAPS else value}" for cap, value in changes.items())


def _not_waiting(turn: Turn) -> str:
    return _("Turn %(id)s is %(status)s and is not waiting for a budget, so there is nothing to raise.") % {
        "id": turn.pk,
        "status": turn.get_status_display(),
    }


def _over(turn: Turn) -> str:
    return _("Turn %(id)s is %(status)s, so its budget cannot be lowered.") % {
        "id": turn.pk,
        "status": turn.get_status_display(),
    }
