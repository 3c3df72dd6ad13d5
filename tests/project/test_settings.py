"""The project starts without any setting, and starts safe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings as project_settings
from django.core.exceptions import ImproperlyConfigured

from project.secret_key import local_secret_key
from project.settings import database

ROOT = project_settings.BASE_DIR


def in_a_new_process(code: str, **environment: str) -> str:
    """What ``code`` prints in a Python of its own, with nothing of ours in the environment but ``environment``."""
    unset = ("DATABASE_URL", "SECRET_KEY", "DEBUG", "ALLOWED_HOSTS", "QCLUSTER_REDIS")
    kept = {key: value for key, value in os.environ.items() if key not in unset}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**kept, **environment}, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_a_local_secret_key_is_made_once(tmp_path: Path) -> None:
    first = local_secret_key(tmp_path / "key")
    assert len(first) >= 50
    assert local_secret_key(tmp_path / "key") == first
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_only_its_owner_can_read_the_secret_key(tmp_path: Path) -> None:
    local_secret_key(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_processes_that_start_together_share_one_secret_key(tmp_path: Path) -> None:
    code = "import pathlib, sys, project.secret_key as s; print(s.local_secret_key(pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(tmp_path / "key")]
    starting = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    keys = {process.communicate()[0] for process in starting}
    assert len(keys) == 1
    assert len(keys.pop().strip()) >= 50


def test_a_secret_key_that_cannot_be_kept_is_asked_for_by_name(tmp_path: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match="set the environment variable SECRET_KEY"):
        local_secret_key(tmp_path / "absent" / "key")


def test_debug_mode_is_off_as_soon_as_a_secret_key_is_given() -> None:
    code = "from project.settings import DEBUG; print(DEBUG)"
    assert in_a_new_process(code) == "True"
    assert in_a_new_process(code, SECRET_KEY="x" * 50) == "False"
    assert in_a_new_process(code, SECRET_KEY="x" * 50, DEBUG="1") == "True"


def test_a_named_sqlite_file_is_as_safe_as_the_default_one() -> None:
    options = database("sqlite:////somewhere/else.sqlite3")["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert options["timeout"] == 20
    assert "journal_mode=WAL" in options["init_command"]


def test_a_postgresql_url_keeps_and_checks_its_connections() -> None:
    entry = database("postgres://shop:pw@db.example:5433/shop")
    assert (entry["HOST"], entry["PORT"], entry["NAME"]) == ("db.example", 5433, "shop")
    assert entry["CONN_MAX_AGE"] == 60
    assert entry["CONN_HEALTH_CHECKS"] is True


def test_a_pool_in_the_url_keeps_the_connections_itself() -> None:
    assert database("postgres:///shop?pool=true")["CONN_MAX_AGE"] == 0


def test_redis_replaces_the_database_as_the_broker_where_it_is_named() -> None:
    code = "from project.settings import Q_CLUSTER; print(Q_CLUSTER.get('orm'), Q_CLUSTER.get('redis'))"
    assert in_a_new_process(code) == "default None"
    assert in_a_new_process(code, QCLUSTER_REDIS="redis://127.0.0.1:6379/1") == "None redis://127.0.0.1:6379/1"
