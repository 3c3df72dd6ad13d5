"""What ``manage.py check`` says about an unsafe set-up; nothing when all is well.

Ids begin with ``agentturns.``: E is certain to break, W may lose work, money or speed, I is good to know. 001 to 009
are about the ``AGENTTURNS`` setting, 010 to 019 about django-q2, 020 to 029 about the database, 030 to 039 about
agents. What needs a query is asked by ``manage.py check --database default`` only.
"""

from __future__ import annotations

from django.core.checks import Tags
from django.core.checks import register as register_check

from agentturns.checks.agents import check_agents
from agentturns.checks.databases import check_database, check_server
from agentturns.checks.queue import check_queue, check_sweep
from agentturns.checks.values import check_values

__all__ = ["register"]

TAG = "agentturns"


def register() -> None:
    """Make ``manage.py check`` run the checks of agentturns."""
    for check in (check_values, check_queue, check_database, check_agents):
        register_check(check, TAG)
    for check in (check_server, check_sweep):
        register_check(check, TAG, Tags.database)
