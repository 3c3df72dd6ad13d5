"""The database of a demo: the project's own, or one that lasts for one ``with`` block."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.utils.crypto import get_random_string

from project.desk.demo.failure import DemoFailed
from project.settings import database

OPERATOR = "demo"


def url_of(file: Path) -> str:
    """The ``DATABASE_URL`` of a SQLite file."""
    return f"sqlite:///{quote(str(file))}"


@contextmanager
def instead_of_the_projects(url: str) -> Iterator[None]:
    """Let this thread's queries go to the database at ``url`` inside the block."""
    before = connections.settings[DEFAULT_DB_ALIAS]
    _connect_to(connections.configure_settings({DEFAULT_DB_ALIAS: database(url)})[DEFAULT_DB_ALIAS])
    try:
        yield
    finally:
        _connect_to(before)


def _connect_to(entry: dict[str, object]) -> None:
    connections[DEFAULT_DB_ALIAS].close()
    connections.settings[DEFAULT_DB_ALIAS] = entry
    del connections[DEFAULT_DB_ALIAS]
    # It remembers ids of the other database.
    ContentType.objects.clear_cache()


def migrate() -> None:
    """Bring the tables up to date, without a word."""
    logger = logging.getLogger("agentturns")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        call_command("migrate", verbosity=0, interactive=False)
    finally:
        logger.setLevel(level)


def open_account() -> str:
    """Let the operator log in to the admin; the new password."""
    password = get_random_string(12)
    user, _ = get_user_model().objects.get_or_create(username=OPERATOR)
    user.is_staff = user.is_superuser = user.is_active = True
    user.set_password(password)
    user.save()
    return password


def close_account() -> None:
    """Leave no door open: nobody logs in with a password that was shown on a screen.

    The account itself stays, since the history of turns names it. A database that is gone is no reason to fail here:
    it would hide why the demo ends.
    """
    with suppress(Error):
        for user in get_user_model().objects.filter(username=OPERATOR):
            user.is_staff = user.is_superuser = user.is_active = False
            user.set_unusable_password()
            user.save()


def require_throwaway() -> None:
    """Raise ``DemoFailed`` where the project's database may be one that people rely on."""
    if not settings.DEBUG:
        raise DemoFailed(
            "DEBUG is off, so people may rely on this database, and the demo adds an account and turns to it. "
            "Set DEBUG=1 if that is meant, or unset DATABASE_URL and run demo --once, which makes its own."
        )
