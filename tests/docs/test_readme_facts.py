"""What README.md names exists: commands, settings, caps, states, reasons, files, packages."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

import agentturns
from agentturns.conf import Settings
from agentturns.definitions.limits import CAPS
from agentturns.definitions.tools import EFFECTS
from agentturns.models.states import ParkReason, Status
from tests.docs.readme import OPERATIONS, ROOT, TEXT, blocks, first_column, section
from tests.test_bad_input import CASES

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Upper case, yet no key of AGENTTURNS: the environment's, Django's and SQL's own.
OTHER_NAMES = {
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DATABASE_URL", "AGENTTURNS", "OPTIONS", "INSTALLED_APPS", "Q_CLUSTER"),
    *("CONN_MAX_AGE", "CONN_HEALTH_CHECKS", "SIGTERM", "SIGKILL", "SIGHUP", "NUL"),
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_exists(page: Path) -> None:
    named = set(re.findall(r"manage\.py (\w+)", page.read_text()))

    assert named
    assert named <= set(get_commands())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_settings_key_exists(page: Path) -> None:
    text = page.read_text()
    keys = {key for key, value in vars(Settings).items() if isinstance(value, property)}
    named = set(re.findall(r"`([A-Z][A-Z_]{2,})`", text)) | set(re.findall(r'AGENTTURNS\["(\w+)"\]', text))

    assert named
    assert named - OTHER_NAMES <= keys


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_linked_file_exists(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text())

    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_test_command_is_the_one_that_ci_runs() -> None:
    [command] = re.findall(r"^TEST_COMMAND='(.*)'$", (ROOT / ".ci" / "run").read_text(), re.M)

    assert command in [block.code.strip() for block in blocks(section("Try it"))]


def test_every_key_of_the_queue_is_one_that_django_q2_reads() -> None:
    from django_q.conf import Conf

    [settings] = [block.code for block in blocks(TEXT) if block.file == "mysite/settings.py"]
    given: dict[str, object] = {"INSTALLED_APPS": [], "DATABASES": {"default": {}}}
    exec(settings, given)
    own_names = {"name": "PREFIX"}  # the others are attributes of their own name

    assert [key for key in given["Q_CLUSTER"] if not hasattr(Conf, own_names.get(key, key.upper()))] == []


def test_every_state_is_explained() -> None:
    assert first_column(section("States of a turn")) == list(Status.values)


def test_every_cap_is_explained() -> None:
    assert set(first_column(section("Caps"))) == set(CAPS)


def test_the_caps_that_fail_a_turn_are_those_that_say_so() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\w+)[^|]*\|$", section("Caps"), re.M)

    assert {cap: what.removesuffix("s") for cap, what in rows} == {name: cap.on_breach for name, cap in CAPS.items()}


def test_every_effect_is_explained() -> None:
    explained = set(re.findall(r'`"(\w+)"`', section("Effects")))

    assert explained >= set(EFFECTS)


def test_every_park_reason_says_what_to_press() -> None:
    assert set(first_column(section("Why a turn is parked, and what to press"))) == set(ParkReason.values)


def test_every_button_exists() -> None:
    named = set(re.findall(r"\*([A-Z][^*|]+)\*", section("Why a turn is parked, and what to press")))
    sources = [*(ROOT / "agentturns" / "templates").rglob("*.html"), *(ROOT / "agentturns" / "admin").glob("*.py")]
    shown = "\n".join(source.read_text() for source in sources)

    assert len(named) > 8
    assert [button for button in named if f'"{button}"' not in shown] == []


def test_every_sentence_about_bad_input_is_one_that_people_read() -> None:
    rows = re.findall(r"^\| .+ \| .+ \| (\S.*) \|$", section("Bad input"), re.M)
    sentences = [row for row in rows if row not in ("what you read", "---")]

    assert len(sentences) > 10
    assert [told for told in sentences if not any(_tells(told, case.sentence) for case in CASES)] == []


def _tells(told: str, sentence: str) -> bool:
    """Whether ``told`` is the sentence, but for what "…" leaves out at its end."""
    return sentence == told or (told.endswith("…") and sentence.startswith(told.removesuffix("…").rstrip()))


def test_every_option_of_the_worker_exists() -> None:
    parser = load_command_class("agentturns", "turnworker").create_parser("manage.py", "turnworker")
    explained = re.findall(r"`(--\w+)`", OPERATIONS)

    assert explained
    assert [option for option in explained if option not in parser.format_help()] == []


def test_every_verb_exists() -> None:
    verbs = re.findall(r"`(turn|call)\.(\w+)\(", TEXT)
    owners = {"turn": agentturns.Turn, "call": agentturns.ToolCall}

    assert verbs
    assert [verb for owner, verb in verbs if not hasattr(owners[owner], verb)] == []


def test_every_import_works() -> None:
    for module, names in re.findall(r"^from (agentturns[\w.]*) import (.+)$", TEXT, re.M):
        for name in names.split(", "):
            assert hasattr(import_module(module), name), f"{module} has no {name}"


def test_every_dependency_has_a_reason() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = [line for lines in declared["optional-dependencies"].values() for line in lines]
    demo = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    packages = {re.split(r"[\[<>=]", line)[0] for line in (*declared["dependencies"], *optional, *demo)}
    explained = re.findall(r"^\| ([\w, -]+) \|", section("Dependencies"), re.M)

    assert {name for row in explained for name in row.split(", ")} - {"package"} == packages
