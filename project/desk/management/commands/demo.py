"""``manage.py demo``: turns to look at and to press buttons on."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any, NoReturn

from django.core.management.base import BaseCommand
from django.db import Error

from project.desk.demo.failure import DemoFailed
from project.desk.demo.interrupts import Interrupted, interruptible
from project.desk.demo.live import stay_open
from project.desk.demo.once import show_once
from project.desk.demo.report import Voice


class Command(BaseCommand):
    help = (
        "Starts a web server and a worker, and shows turns in several states in the admin, until Ctrl-C. With --once: "
        "one turn that parks on its cost limit, is raised in the admin and answers; exits 0, or 1 saying why not."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="Show one turn from start to answer, and end.")
        parser.add_argument(
            "--port", type=int, default=8000, help="Port of the web server; the next free one if taken."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        voice = Voice(self.stdout)
        try:
            with interruptible():
                if options["once"]:
                    show_once(voice, options["port"])
                else:
                    stay_open(voice, options["port"])
        except DemoFailed as failure:
            self._fail(failure)
        except Error as error:
            self._fail(DemoFailed(f"The database refuses ({type(error).__name__}): {error}".strip()))
        except Interrupted as stop:
            voice.say(f"Stopped by {stop.signal.name}; the web server and the worker are gone.")
            if options["once"]:
                sys.exit(128 + stop.signal)

    def _fail(self, failure: DemoFailed) -> NoReturn:
        Voice(self.stderr).complain(failure)
        sys.exit(1)
