"""Who looks at the admin, and how a test reads what they see."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client

VIEWS = ("view_turn", "view_toolcall", "view_session", "view_step", "view_budgetchange")
VERBS = ("raise_budget", "cancel_turn", "retry_turn", "decide_toolcall")


def staff(name: str, *codenames: str) -> User:
    """A staff user with exactly these permissions of agentturns."""
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="agentturns", codename__in=codenames))
    assert user.user_permissions.count() == len(codenames)
    return user


def browser_of(user: User, **options: Any) -> Client:
    """A browser in which ``user`` is logged in."""
    client = Client(**options)
    client.force_login(user)
    return client


def words(response: Any) -> str:
    """A page as read: tags gone, entities read, spaces single."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", response.content.decode())).split())


def messages_of(response: Any) -> list[str]:
    """The messages on the page that a POST led to (``follow=True``)."""
    return [str(message) for message in response.context["messages"]]
