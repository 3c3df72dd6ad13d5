"""Settings of the demo project, and an example of safe ones for yours.

Environment: ``SECRET_KEY``, ``DEBUG``, ``ALLOWED_HOSTS`` (comma-separated), ``DATABASE_URL``, ``QCLUSTER_REDIS``.
Without any of them the project runs on this machine, on SQLite, in debug mode.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dj_database_url

from project.secret_key import local_secret_key

BASE_DIR = Path(__file__).resolve().parent.parent

# A SECRET_KEY in the environment marks a deployment; only without one is debug mode the default.
SECRET_KEY = os.environ.get("SECRET_KEY") or local_secret_key(BASE_DIR / ".secret_key")
DEBUG = os.environ.get("DEBUG", "0" if os.environ.get("SECRET_KEY") else "1").lower() in ("1", "true", "yes", "on")
ALLOWED_HOSTS = os.environ.get("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_q",
    "agentturns",
    "project.desk",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "project.urls"
WSGI_APPLICATION = "project.wsgi.application"
ASGI_APPLICATION = "project.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]


def database(url: str) -> dict[str, Any]:
    """The entry of ``DATABASES`` for a database URL, SQLite made safe for several processes and threads."""
    # Opening a connection costs more than a step's queries, so connections are kept for a minute; a health check
    # finds those that the server closed meanwhile.
    parsed: dict[str, Any] = {**dj_database_url.parse(url, conn_max_age=60, conn_health_checks=True)}
    options = parsed.setdefault("OPTIONS", {})
    if options.get("pool"):
        parsed["CONN_MAX_AGE"] = 0  # the pool keeps the connections, and Django refuses both
    if parsed["ENGINE"] == "django.db.backends.sqlite3":
        # IMMEDIATE takes the write lock at BEGIN and waits for it; a deferred transaction that reads first and
        # writes later fails at once with "database is locked". WAL lets readers go on beside the one writer.
        options.setdefault("transaction_mode", "IMMEDIATE")
        options.setdefault("timeout", 20)
        options.setdefault("init_command", "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL")
        # Threads and worker processes cannot share an in-memory database; the process id keeps test runs apart.
        parsed["TEST"] = {"NAME": str(Path(tempfile.gettempdir()) / f"test-agentturns-{os.getpid()}.sqlite3")}
    return parsed


DATABASES = {"default": database(os.environ.get("DATABASE_URL") or f"sqlite:///{quote(str(BASE_DIR / 'db.sqlite3'))}")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

# Mail that the demo's tools send is shown, not sent.
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"

STATIC_URL = "static/"

# The queue is only a doorbell for turns, so nothing is lost when a message is late; what hurts is one that comes
# twice, or a worker that is killed for working long.
Q_CLUSTER: dict[str, Any] = {
    "name": "agentturns",
    "label": "Task queue",
    "workers": 2,
    # The ORM broker sees a message when the transaction that made the turn runnable commits, never before.
    **({"redis": os.environ["QCLUSTER_REDIS"]} if os.environ.get("QCLUSTER_REDIS") else {"orm": "default"}),
    # Seconds between looks at the queue: most of the delay between a raise and the next model call.
    "poll": 0.05,
    # A worker that is at work for longer is killed. An int, and far above a slice plus the longest call.
    "timeout": 3600,
    # An unacknowledged message is delivered again after this many seconds; above timeout.
    "retry": 3900,
    # Waiting in a worker's memory counts against retry, so as little as possible waits there.
    "queue_limit": 1,
    "bulk": 1,
    # Without these two, a message that fails is delivered again for ever.
    "max_attempts": 3,
    "ack_failures": True,
    # Successes are not kept: pruning them loads every kept row for each result.
    "save_limit": -1,
    # After a pause, a schedule runs once, not once for each time it missed.
    "catch_up": False,
}

# Every key is documented in agentturns/conf.py. Keys of model providers are read from the environment.
AGENTTURNS: dict[str, Any] = {}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        "agentturns": {"handlers": ["stderr"], "level": "INFO"},
        "django-q": {"handlers": ["stderr"], "level": "WARNING"},
    },
}
