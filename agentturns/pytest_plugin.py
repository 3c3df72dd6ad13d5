"""The pytest plugin: installed with agentturns, it gives tests the fixture ``run_turns``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from agentturns.models import Turn


@pytest.fixture
def run_turns() -> Callable[..., list[Turn]]:
    """``agentturns.testing.drain``: run every runnable turn at once, and return them."""
    # Not at the top: pytest loads plugins before Django has its settings.
    from agentturns.testing import drain

    return drain
