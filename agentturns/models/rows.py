"""What every table here shares: its database, and columns that only the engine writes."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models

from agentturns.conf import conf


class RowManager(models.Manager[Any]):
    """Looks in ``AGENTTURNS["DATABASE"]`` unless told otherwise."""

    def get_queryset(self) -> models.QuerySet[Any]:
        rows = super().get_queryset()
        return rows if self._db else rows.using(conf.DATABASE)


class Row(models.Model):
    """A row whose columns belong to the engine, except those in ``people_columns``.

    A plain ``save()`` of a loaded row writes only ``people_columns``: an instance read before a worker moved the
    turn must never put old counters or an old status back.
    """

    people_columns: ClassVar[tuple[str, ...]] = ()

    objects = RowManager()

    class Meta:
        abstract = True

    def save(self, **options: Any) -> None:
        if not self._state.adding and options.get("update_fields") is None and not options.get("force_insert"):
            options["update_fields"] = self.people_columns
        options.setdefault("using", self._state.db or conf.DATABASE)
        super().save(**options)
