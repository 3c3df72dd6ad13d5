"""Settings of the demo's processes: the project's, on this machine only, with e-mails written to files.

Environment, set by the demo: ``DEMO_OUTBOX``, the folder of the e-mails; ``DEMO_MAIL_PORT``, a mail server on this
machine to send them to instead.
"""

from __future__ import annotations

import os

from project.settings import *  # noqa: F403
from project.settings import AGENTTURNS as PROJECT_AGENTTURNS

# The pages and their static files come from the development server.
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]

# Short, so that whoever watches does not wait a minute until a killed worker's turn is taken over.
AGENTTURNS = {**PROJECT_AGENTTURNS, "LEASE_SECONDS": 5, "SWEEP_SECONDS": 1}

EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
EMAIL_FILE_PATH = os.environ.get("DEMO_OUTBOX")
if os.environ.get("DEMO_MAIL_PORT"):
    EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    EMAIL_HOST = "127.0.0.1"
    EMAIL_PORT = int(os.environ["DEMO_MAIL_PORT"])
