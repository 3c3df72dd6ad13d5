"""The settings of a worker under test: the project's, the shop's app, and what the test says of agentturns."""

from __future__ import annotations

import json
import os

from project.settings import *  # noqa: F403
from project.settings import INSTALLED_APPS as PROJECTS_APPS

INSTALLED_APPS = [*PROJECTS_APPS, "tests.end_to_end.shop"]
AGENTTURNS = json.loads(os.environ["SHOP_AGENTTURNS"])
