"""What tests of the rows and their verbs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User

from agentturns import doorbell

Allowed = Callable[..., User]


@pytest.fixture
def bells(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the turns that were rung for, in order; the bell itself rings as well."""
    rung: list[int] = []
    ring = doorbell.ring

    def noted(turn_id: int, *args: Any, **options: Any) -> Any:
        rung.append(turn_id)
        return ring(turn_id, *args, **options)

    monkeypatch.setattr(doorbell, "ring", noted)
    return rung


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
