"""A test that is skipped for want of a service fails a run that requires the services."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

NEEDS_ABSENT_REDIS = """
import pytest

@pytest.mark.redis
def test_needs_redis():
    pass
"""


@pytest.mark.parametrize(("required", "outcome"), [("0", "1 skipped"), ("1", "1 error")])
def test_a_skip_for_want_of_redis_fails_only_a_run_that_requires_it(
    tmp_path: Path, required: str, outcome: str
) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_it.py").write_text(NEEDS_ABSENT_REDIS)
    nobody_listens = {"REDIS_URL": "redis://127.0.0.1:1", "AGENTTURNS_CI_REQUIRE_SERVICES": required}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", "pyproject.toml", str(tmp_path / "test_it.py")],
        cwd=settings.BASE_DIR,
        env={**os.environ, **nobody_listens},
        capture_output=True,
        text=True,
    )
    assert outcome in run.stdout
    assert "needs Redis at redis://127.0.0.1:1" in run.stdout or required == "0"
