"""Users with exactly these permissions."""

from __future__ import annotations

from django.contrib.auth.models import Permission, User


def user_who_may(*codenames: str, name: str = "ann") -> User:
    """A new user of this name who has these permissions of agentturns and no other."""
    user = User.objects.create_user(name)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="agentturns", codename__in=codenames))
    assert user.user_permissions.count() == len(codenames)
    return user
