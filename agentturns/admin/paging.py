"""Pages of a list too long to be counted."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from django.core.paginator import Paginator
from django.db.models import QuerySet

AHEAD: Final = 10  # pages counted beyond the one shown
_FURTHEST: Final = 10_000_000  # beyond it a database's LIMIT would overflow


class NearbyPaginator(Paginator):
    """Counts rows only a few pages beyond the one shown, so that a first page costs the same for any number of rows.

    ``count`` is the number of rows up to there, and ``more`` says whether rows follow: each page shown offers
    further ones, to the end.
    """

    def __init__(self, object_list: QuerySet, per_page: int, *args: Any, page: int = 1, **options: Any) -> None:
        super().__init__(object_list, per_page, *args, **options)
        self.rows = object_list
        self.bound = (min(max(page, 1), _FURTHEST) + AHEAD) * per_page

    @cached_property
    def count(self) -> int:
        return self.rows.values("pk")[: self.bound].count()

    @property
    def more(self) -> bool:
        """Whether there are rows beyond those counted."""
        return self.count >= self.bound
