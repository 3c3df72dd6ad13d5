"""Who did what: permissions asked before, Django's admin log written after, both in the verb's transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.apps import apps
from django.core.exceptions import PermissionDenied
from django.db import models
from django.utils import timezone

from agentturns.conf import conf, load


def name_of(user: Any) -> str:
    """The user's name as text; "" for trusted code."""
    return user.get_username() if user is not None else ""


def local_time(moment: datetime) -> str:
    """The moment to the second in the current time zone, for a sentence."""
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return f"{local:%Y-%m-%d %H:%M:%S}"


def require_permission(user: Any, codename: str, what: str) -> None:
    """Raise ``PermissionDenied`` unless ``user`` (None is trusted code) may do this; ``TypeError`` for no user."""
    if user is not None and not hasattr(user, "has_perm"):
        raise TypeError(f"by is a {type(user).__name__}, but it is a user of this project, or None for trusted code.")
    if user is not None and not user.has_perm(f"agentturns.{codename}"):
        who = name_of(user) or "An anonymous user"
        raise PermissionDenied(f"{who} may not {what}; it takes the permission agentturns.{codename}.")


def require_consent(user: Any, call: Any) -> None:
    """Raise ``PermissionDenied`` unless ``AGENTTURNS["MAY_DECIDE"]`` lets ``user`` decide this very call."""
    if user is None or not conf.MAY_DECIDE:
        return
    said = load(conf.MAY_DECIDE, "MAY_DECIDE")(user, call)
    if said is not True:
        why = (
            said
            if isinstance(said, str) and said
            else f"AGENTTURNS['MAY_DECIDE'] ({conf.MAY_DECIDE}) does not allow it."
        )
        raise PermissionDenied(f"{name_of(user)} may not decide the call of {call.name}: {why}")


def log_change(user: Any, row: models.Model, message: str) -> None:
    """Write ``message`` to the admin's log of ``row``, where a user is known and the admin is installed."""
    if user is None or not apps.is_installed("django.contrib.admin"):
        return
    from django.contrib.admin.models import CHANGE, LogEntry
    from django.contrib.contenttypes.models import ContentType

    LogEntry.objects.using(conf.DATABASE).create(
        user_id=user.pk,
        content_type_id=ContentType.objects.db_manager(conf.DATABASE).get_for_model(row).pk,
        object_id=str(row.pk),
        object_repr=str(row)[:200],
        action_flag=CHANGE,
        change_message=message,
    )
