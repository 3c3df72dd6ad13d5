"""The settings of a worker under test: the project's, the shop's app, and what the test says."""

from __future__ import annotations

import json
import os

from project.settings import *  # noqa: F403
from project.settings import DATABASES, INSTALLED_APPS, Q_CLUSTER

INSTALLED_APPS = [*INSTALLED_APPS, "tests.worker.shop"]
AGENTTURNS = json.loads(os.environ.get("SHOP_AGENTTURNS", "{}"))
Q_CLUSTER = {**Q_CLUSTER, **json.loads(os.environ.get("SHOP_Q_CLUSTER", "{}"))}
if os.environ.get("SHOP_POOL"):
    DATABASES["default"]["CONN_MAX_AGE"] = 0
    DATABASES["default"]["OPTIONS"]["pool"] = {"min_size": 1, "max_size": 8}
