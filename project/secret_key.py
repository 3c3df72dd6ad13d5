"""A SECRET_KEY for local use, made once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.core.management.utils import get_random_secret_key


def local_secret_key(path: Path) -> str:
    """The key kept in the file ``path``, readable by its owner only; made on first use.

    Raises ``ImproperlyConfigured`` when the file can neither be read nor made.
    """
    try:
        if not path.exists():
            _create(path)
        return path.read_text().strip()
    except OSError as error:
        raise ImproperlyConfigured(
            f"No SECRET_KEY is set and {path} cannot be used instead ({error.strerror}); "
            "set the environment variable SECRET_KEY."
        ) from error


def _create(path: Path) -> None:
    # mkstemp makes the file 0600. Linking it into place when it is whole lets exactly one of several processes that
    # start together win, and shows the others no half-written key.
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(get_random_secret_key())
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        os.unlink(draft)
