"""What tests of the rows and their verbs share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django_q.models import OrmQ

Allowed = Callable[..., User]


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


@pytest.fixture
def user_who_may(transactional_db: None) -> Allowed:
    """Makes a user of this name with these permissions of agentturns."""

    def make(*codenames: str, name: str = "ann") -> User:
        user = User.objects.create_user(name)
        user.user_permissions.set(
            Permission.objects.filter(content_type__app_label="agentturns", codename__in=codenames)
        )
        assert user.user_permissions.count() == len(codenames)
        return user

    return make
