"""The database's clock: leases and waits are written and compared on it alone, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone


class UTCDateTimeField(models.DateTimeField):
    """A moment on the database's clock.

    With ``USE_TZ = False`` Django keeps local times in SQLite, where the database's own clock is UTC and local time
    jumps twice a year; these columns hold UTC there whatever ``USE_TZ`` says.
    """

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        if value is None or settings.USE_TZ or connection.vendor != "sqlite":
            return value
        return timezone.make_naive(value.replace(tzinfo=UTC), timezone.get_default_timezone())

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        if isinstance(value, datetime) and not settings.USE_TZ and connection.vendor == "sqlite":
            value = timezone.make_aware(value, timezone.get_default_timezone()).astimezone(UTC).replace(tzinfo=None)
        return super().get_db_prep_value(value, connection, prepared)


def database_now() -> models.Expression:
    """The database's current time, as an expression for filters and updates."""
    return Now(output_field=UTCDateTimeField())


def database_now_plus(seconds: float) -> models.Expression:
    """The database's current time plus ``seconds``."""
    return models.ExpressionWrapper(
        Now(output_field=UTCDateTimeField()) + timedelta(seconds=seconds), output_field=UTCDateTimeField()
    )
