"""Another Python process on this test's database, with settings of its own from its start."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.parse import quote

from django.db import connection

ROOT = Path(__file__).resolve().parent.parent


def database_url() -> str:
    """The URL of the database that this test uses."""
    used = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{quote(str(used['NAME']))}"
    login = quote(used["USER"]) + (f":{quote(used['PASSWORD'])}" if used["PASSWORD"] else "")
    return f"postgres://{login}@{used['HOST']}:{used['PORT'] or 5432}/{used['NAME']}"


def run_python(script: str, directory: Path, *, settings: str = "", setup: bool = True) -> str:
    """What ``script`` prints in a process whose settings are the project's, then ``settings``. Fails if it fails.

    ``setup=False`` leaves it to the script to call ``django.setup()``.
    """
    (directory / "own_settings.py").write_text(f"from project.settings import *\n\n{textwrap.dedent(settings)}")
    begin = "import django\n\ndjango.setup()\n" if setup else ""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "own_settings",
        "DATABASE_URL": database_url(),
        "PYTHONPATH": os.pathsep.join((str(directory), str(ROOT))),
    }
    done = subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(script)],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
