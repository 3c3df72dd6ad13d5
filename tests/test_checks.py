"""``manage.py check`` names each unsafe setting, and is silent about safe ones."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings as project_settings
from django.core.checks import run_checks
from django.db import connection
from django.db.utils import ConnectionHandler

from agentturns import Agent, Limits
from agentturns.conf import Settings

SAFE_CLUSTER = dict(project_settings.Q_CLUSTER)
SAFE_SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": "/nowhere/db.sqlite3",
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
    },
}
SAFE_POSTGRES = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": "shop",
    "CONN_MAX_AGE": 60,
    "CONN_HEALTH_CHECKS": True,
}


def found(databases: list[str] | None = None) -> list[str]:
    """The ids that ``manage.py check`` shows, without their prefix."""
    messages = run_checks(tags=["agentturns"], databases=databases)
    return [message.id.removeprefix("agentturns.") for message in messages]


def texts() -> str:
    return "\n".join(f"{message.msg} {message.hint}" for message in run_checks(tags=["agentturns"]))


@pytest.fixture(autouse=True)
def no_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentturns.definitions.agent._registry", {})


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Check as if ``DATABASES`` had this default entry (no connection is made)."""

    def use(entry: dict[str, Any]) -> None:
        monkeypatch.setattr("agentturns.checks.databases.connections", ConnectionHandler({"default": entry}))

    return use


# The project as it is


@pytest.mark.django_db
def test_the_projects_own_settings_raise_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # its own agents are checked too
    assert found(databases=["default"]) == []


# AGENTTURNS


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param(["CONCURRENCY"], "E001", id="no dict"),
        pytest.param({"CONCURRENCY": "20"}, "E002", id="text for a number"),
        pytest.param({"CONCURRENCY": True}, "E002", id="a boolean for a number"),
        pytest.param({"CONCURRENCY": 0}, "E002", id="zero workers"),
        pytest.param({"CONCURRENCY": 2.5}, "E002", id="half a worker"),
        pytest.param({"LEASE_SECONDS": float("nan")}, "E002", id="not a number"),
        pytest.param({"DATABASE": None}, "E002", id="no text"),
        pytest.param({"PROVIDERS": ["openai"]}, "E002", id="a list of providers"),
        pytest.param({"DEFAULT_LIMITS": {"max_stops": 5}}, "E003", id="an unknown cap"),
        pytest.param({"DEFAULT_LIMITS": {"max_cost": 0.25}}, "E003", id="a float for money"),
        pytest.param({"PROVIDERS": {"mine": "openai"}}, "E004", id="a provider that is text"),
        pytest.param({"PROVIDERS": {"mine": {"OPTIONS": {}}}}, "E004", id="a provider without backend"),
        pytest.param({"PROVIDERS": {"mine": {"BACKEND": "x.Y", "OPTIONS": []}}}, "E004", id="options in a list"),
        pytest.param({"PROVIDERS": {"mine": {"BACKEND": "x.Y", "api_key": "k"}}}, "W001", id="an option outside"),
        pytest.param({"COLOUR": "red"}, "W001", id="an unknown key"),
    ],
)
def test_a_wrong_agentturns_value_is_reported(settings: Any, values: Any, expected: str) -> None:
    settings.AGENTTURNS = values
    assert found() == [expected]


def test_a_misspelt_key_is_answered_with_the_key_that_was_meant(settings: Any) -> None:
    settings.AGENTTURNS = {"CONCURENCY": 5}
    assert "Did you mean 'CONCURRENCY'?" in texts()


def test_every_default_passes_the_check_of_its_own_type(settings: Any) -> None:
    settings.AGENTTURNS = {}
    defaults = {key: getattr(Settings(), key) for key, value in vars(Settings).items() if isinstance(value, property)}
    settings.AGENTTURNS = defaults
    assert found() == []


def test_an_api_key_in_a_wrong_place_is_not_shown(settings: Any) -> None:
    for providers in ("sk-secret", {"mine": "sk-secret"}, {"mine": {"BACKEND": 1, "api_key": "sk-secret"}}):
        settings.AGENTTURNS = {"PROVIDERS": providers}
        assert "sk-secret" not in texts()
        assert found()


# django-q2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"timeout": 3600.0}, "E012", id="a float as timeout"),
        pytest.param({"timeout": 3900}, "E013", id="timeout not below retry"),
        pytest.param({"retry": 300, "timeout": None}, "W011", id="retry shorter than a pump"),
        pytest.param({"queue_limit": 50}, "W012", id="a long queue in memory"),
        pytest.param({"queue_limit": ...}, "W012", id="the default queue in memory"),
        pytest.param({"bulk": 10}, "W012", id="messages taken in bulk"),
        pytest.param({"max_attempts": ...}, "W013", id="endless attempts"),
        pytest.param({"ack_failures": ...}, "W014", id="failures not acknowledged"),
        pytest.param({"sync": True}, "W015", id="sync"),
        pytest.param({"save_limit": ...}, "W016", id="the default pruning"),
        pytest.param({"catch_up": ...}, "W017", id="catching up"),
        pytest.param({"orm": "nowhere"}, "E014", id="an unknown broker alias"),
    ],
)
def test_an_unsafe_queue_setting_is_reported(settings: Any, change: dict[str, Any], expected: str) -> None:
    changed = {**SAFE_CLUSTER, **change}
    settings.Q_CLUSTER = {key: value for key, value in changed.items() if value is not ...}
    assert found() == [expected]


def test_a_project_without_q_cluster_is_told_so(settings: Any) -> None:
    del settings.Q_CLUSTER
    assert found() == ["E011"]


def test_a_project_without_django_q_is_told_so(settings: Any) -> None:
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "django_q"]
    assert found() == ["E010"]


def test_a_broker_on_another_database_is_said_to_ring_after_the_commit(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = ConnectionHandler({"default": SAFE_SQLITE, "queue": SAFE_SQLITE})
    monkeypatch.setattr("agentturns.checks.queue.connections", two)
    settings.Q_CLUSTER = {**SAFE_CLUSTER, "orm": "queue"}
    assert found() == ["I010"]


def test_the_cluster_that_runs_turns_is_checked_with_its_own_settings(settings: Any) -> None:
    settings.Q_CLUSTER = {**SAFE_CLUSTER, "name": "shop", "ALT_CLUSTERS": {"agentturns": {"bulk": 10}}}
    assert found() == ["W012"]


@pytest.mark.django_db
def test_a_missing_sweep_schedule_is_reported_when_the_database_is_asked() -> None:
    apps.get_model("django_q", "Schedule").objects.all().delete()
    assert found(databases=["default"]) == ["W018"]
    assert found() == []


# The database


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"NAME": ":memory:"}, ["W021"], id="in memory"),
        pytest.param({"NAME": "file:shop?mode=memory&cache=shared"}, ["W021"], id="shared memory"),
        pytest.param({"transaction_mode": ...}, ["W022"], id="deferred transactions"),
        pytest.param({"timeout": ...}, ["W023"], id="the default busy wait"),
        pytest.param({"init_command": "PRAGMA synchronous=NORMAL"}, ["W024"], id="no write-ahead log"),
        pytest.param({"OPTIONS": {}}, ["W022", "W023", "W024"], id="a fresh project"),
    ],
)
def test_an_unsafe_sqlite_is_reported(on: Any, change: dict[str, Any], expected: list[str]) -> None:
    entry = {**SAFE_SQLITE, **{key: value for key, value in change.items() if key.isupper()}}
    options = {**entry["OPTIONS"], **{key: value for key, value in change.items() if key.islower()}}
    on({**entry, "OPTIONS": {key: value for key, value in options.items() if value is not ...}})
    assert found() == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"CONN_MAX_AGE": 0}, "W025", id="a connection each time"),
        pytest.param({"CONN_HEALTH_CHECKS": False}, "W026", id="unchecked connections"),
        pytest.param({"OPTIONS": {"pool": True}}, "E022", id="a pool of kept connections"),
        pytest.param({"OPTIONS": {"isolation_level": 3}}, "E021", id="repeatable read"),
        pytest.param({"OPTIONS": {"isolation_level": 4}}, "E021", id="serializable"),
        pytest.param({"OPTIONS": {"options": "-c default_transaction_isolation=serializable"}}, "E021", id="by option"),
        pytest.param(
            {"OPTIONS": {"options": r"-c default_transaction_isolation=repeatable\ read"}},
            "E021",
            id="by quoted option",
        ),
    ],
)
def test_an_unsafe_postgresql_is_reported(on: Any, change: dict[str, Any], expected: str) -> None:
    on({**SAFE_POSTGRES, **change})
    assert found() == [expected]


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(SAFE_SQLITE, id="sqlite"),
        pytest.param(SAFE_POSTGRES, id="postgresql"),
        pytest.param(
            {**SAFE_POSTGRES, "CONN_MAX_AGE": 0, "OPTIONS": {"pool": {"max_size": 10}, "isolation_level": 2}}, id="pool"
        ),
    ],
)
def test_a_safe_database_raises_nothing(on: Any, entry: dict[str, Any]) -> None:
    on(entry)
    assert found() == []


def test_another_database_is_said_to_be_untested(on: Any) -> None:
    on({"ENGINE": "django.db.backends.dummy"})
    assert found() == ["W020"]


def test_an_unknown_database_alias_is_reported(settings: Any) -> None:
    settings.AGENTTURNS = {"DATABASE": "nowhere"}
    assert "E020" in found()


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_a_server_that_is_serializable_by_default_is_reported_when_it_is_asked() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_isolation = 'serializable'")
    try:
        assert "E021" in found(databases=["default"])
        assert found() == []
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET default_transaction_isolation")


# Agents


def declare(name: str = "support", model: str = "scripted:plan", limits: Limits | None = None) -> Agent:
    return Agent(name=name, model=model, instructions="Help.", limits=limits or Limits(max_cost=Decimal("0.25")))


def test_an_agent_with_an_unknown_alias_is_reported() -> None:
    declare(model="nowhere:model")
    assert found() == ["E030"]


@pytest.mark.parametrize(
    "backend", ["nowhere.Nothing", "decimal.Decimal", "agentturns.providers.scripted.Nothing"], ids=str
)
def test_an_agent_whose_backend_is_no_provider_is_reported(settings: Any, backend: str) -> None:
    settings.AGENTTURNS = {"PROVIDERS": {"mine": {"BACKEND": backend}}}
    declare(model="mine:model")
    assert found() == ["E031"]


def test_a_wrong_backend_that_no_agent_uses_is_left_alone(settings: Any) -> None:
    settings.AGENTTURNS = {"PROVIDERS": {"mine": {"BACKEND": "nowhere.Nothing"}}}
    assert found() == []


@pytest.mark.parametrize(
    ("model", "variable"), [("openai:gpt-5-mini", "OPENAI_API_KEY"), ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY")]
)
def test_a_missing_key_is_reported_by_name_once_for_all_agents(
    monkeypatch: pytest.MonkeyPatch, settings: Any, model: str, variable: str
) -> None:
    settings.AGENTTURNS = {"CONCURRENCY": 7}  # providers are made anew
    monkeypatch.delenv(variable, raising=False)
    declare("first", model)
    declare("second", model)
    assert found() == ["W030"]
    assert variable in texts()
    assert "'first', 'second'" in texts()


def test_an_agent_without_max_cost_is_reported() -> None:
    declare(limits=Limits(max_steps=5))
    assert found() == ["W031"]


def test_a_max_cost_of_none_is_a_decision_and_not_reported() -> None:
    declare(limits=Limits(max_cost=None))
    assert found() == []


def test_a_max_cost_in_the_settings_covers_every_agent(settings: Any) -> None:
    settings.AGENTTURNS = {"DEFAULT_LIMITS": {"max_cost": "0.25"}}
    declare(limits=Limits(max_steps=5))
    assert found() == []
