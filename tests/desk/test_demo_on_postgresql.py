"""``manage.py demo --once`` on a PostgreSQL database that ``DATABASE_URL`` names."""

from __future__ import annotations

import os
import uuid
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.desk.running_demo import running


@pytest.mark.postgres
def test_it_runs_on_postgresql() -> None:
    parts = urlsplit(os.environ["DATABASE_URL"])
    name = f"demo_{uuid.uuid4().hex}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        server.execute(f'create database "{name}"')
        try:
            with running("--once", DATABASE_URL=urlunsplit(parts._replace(path=f"/{name}"))) as demo:
                code = demo.end()
                assert code == 0, demo.output
        finally:
            server.execute(f'drop database "{name}" with (force)')
