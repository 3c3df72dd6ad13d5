"""What lets an example run by itself: the demo project's settings, on a new SQLite file.

Your own code has none of this: the agents stand in an app's ``agents.py``, the models in its ``models.py``, and
``manage.py turnworker`` runs the turns.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[2]


def start() -> None:
    """Set Django up. The first argument of the command line names the file to keep the rows in; else they go away."""
    if len(sys.argv) > 1:
        file = Path(sys.argv[1]).resolve()
    else:
        folder = tempfile.mkdtemp(prefix="agentturns-example-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        file = Path(folder) / "db.sqlite3"
    sys.path.insert(0, str(ROOT))
    os.environ["DATABASE_URL"] = f"sqlite:///{quote(str(file))}"
    os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
    os.environ["SECRET_KEY"] = "of no worth: nothing outlives this program"
    os.environ["ALLOWED_HOSTS"] = ".localhost"

    import django
    from django.core.management import call_command

    django.setup()
    logging.getLogger("agentturns").setLevel(logging.WARNING)
    call_command("migrate", verbosity=0)


def create_tables(*models: type) -> None:
    """Make the tables of models that are declared in an example instead of an app."""
    from django.db import connection

    with connection.schema_editor() as editor:
        for model in models:
            editor.create_model(model)
