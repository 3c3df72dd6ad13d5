"""What tests of the rows and their verbs share."""

from __future__ import annotations

import pytest
from django_q.models import OrmQ


class Bells:
    """The messages in the queue: what workers would hear of."""

    def rung_for(self) -> list[int]:
        """The ids of the turns, in the order of their messages."""
        return [message.task["args"][0] for message in OrmQ.objects.order_by("id")]

    def clear(self) -> None:
        """Forget the messages so far."""
        OrmQ.objects.all().delete()


@pytest.fixture
def bells(transactional_db: None) -> Bells:
    """The doorbell's messages, committed ones only."""
    return Bells()
