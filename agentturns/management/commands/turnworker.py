"""``manage.py turnworker``: the process that runs turns."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from agentturns.conf import conf
from agentturns.providers import preload
from agentturns.worker.supervisor import Supervisor

logger = logging.getLogger("agentturns")


class Command(BaseCommand):
    help = "Runs turns until SIGTERM, SIGINT or SIGHUP: a django-q2 cluster on the turns' own queue."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--processes", type=_count, help="How many processes run turns (default: Q_CLUSTER['workers'])."
        )
        parser.add_argument(
            "--concurrency",
            type=_count,
            help="How many turns each process runs at once (default: AGENTTURNS['CONCURRENCY'])",
        )
        parser.add_argument(
            "--grace",
            type=float,
            default=25.0,
            help="Seconds that turns have to reach a boundary when told to stop (default: 25); then they are cut off.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not logger.hasHandlers():
            logger.addHandler(logging.StreamHandler())
            logger.setLevel(logging.INFO)
        if options["concurrency"] is not None:
            settings.AGENTTURNS = {**getattr(settings, "AGENTTURNS", {}), "CONCURRENCY": options["concurrency"]}
        # Imported before the fork, the SDKs' memory is shared by all processes.
        preload()
        logger.info("turnworker started queue=%s concurrency=%s", conf.QUEUE, conf.CONCURRENCY)
        sys.exit(Supervisor(processes=options["processes"], grace=options["grace"]).run())


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
