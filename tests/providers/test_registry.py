"""Aliases lead to providers, made once, and a wrong one is told in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from django.test import override_settings

from agentturns.exceptions import ConfigurationError
from agentturns.providers import get_provider, split_model
from agentturns.providers.openai import OpenAI
from agentturns.providers.scripted import Scripted

SCRIPTED = "agentturns.providers.scripted.Scripted"


def providers(**entries: Any) -> Any:
    return override_settings(AGENTTURNS={"PROVIDERS": entries})


def test_the_built_in_aliases_exist_without_settings() -> None:
    assert isinstance(get_provider("scripted"), Scripted)
    assert isinstance(get_provider("openai"), OpenAI)
    assert get_provider("anthropic").flavour == "messages"


def test_a_provider_is_made_once() -> None:
    assert get_provider("scripted") is get_provider("scripted")


def test_threads_that_ask_at_once_get_the_same_provider() -> None:
    with providers(fresh={"BACKEND": SCRIPTED}):
        start, got = threading.Barrier(8), []

        def ask() -> None:
            start.wait()
            got.append(get_provider("fresh"))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(got) == 8 and len(set(map(id, got))) == 1


def test_changed_settings_make_providers_anew() -> None:
    before = get_provider("openai")
    with providers(openai={"BACKEND": "agentturns.providers.openai.OpenAI", "OPTIONS": {"api": "chat"}}):
        assert get_provider("openai").flavour == "chat"
    assert get_provider("openai").flavour == "responses"
    assert get_provider("openai") is not before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_makes_its_own_provider() -> None:
    before = get_provider("scripted")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # in the child: never back into pytest
        os.write(writer, b"own" if get_provider("scripted") is not before else b"shared")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    assert os.read(reader, 10) == b"own"
    os.close(reader)


WRONG = {
    "unknown alias": ("nobody", {}, "no model provider with the alias 'nobody'; the aliases are anthropic, mine"),
    "no module": ("mine", {"BACKEND": "no.such.Class"}, "BACKEND 'no.such.Class' cannot be imported"),
    "no class": ("mine", {"BACKEND": "agentturns.providers.openai.Nothing"}, "cannot be imported"),
    "no backend": ("mine", {}, "BACKEND is None; name a class, such as"),
    "no provider": ("mine", {"BACKEND": "agentturns.conf.Settings"}, "is no subclass of"),
    "options that are no dict": (
        "mine",
        {"BACKEND": SCRIPTED, "OPTIONS": ["x"]},
        "OPTIONS is a list, but it is a dict",
    ),
    "an unknown option": (
        "mine",
        {"BACKEND": "agentturns.providers.openai.OpenAI", "OPTIONS": {"api_kye": "sk-1234567890"}},
        "OPTIONS has 'api_kye', but the options are api, api_key, base_url",
    ),
    "an unknown api": (
        "mine",
        {"BACKEND": "agentturns.providers.openai.OpenAI", "OPTIONS": {"api": "legacy"}},
        "OPTIONS\\['api'\\] is 'legacy', but it is 'responses' or 'chat'",
    ),
    "an extra that hides the conversation": (
        "mine",
        {"BACKEND": "agentturns.providers.openai.OpenAI", "OPTIONS": {"extra": {"input": []}}},
        "has 'input', which comes from the turn itself",
    ),
    "an extra that is not JSON": (
        "mine",
        {"BACKEND": "agentturns.providers.openai.OpenAI", "OPTIONS": {"extra": {"x": float("nan")}}},
        "OPTIONS\\['extra'\\] is not JSON",
    ),
    "a limit that is none": (
        "mine",
        {"BACKEND": "agentturns.providers.anthropic.Anthropic", "OPTIONS": {"max_tokens": 0}},
        "a whole number of at least 1",
    ),
}


@pytest.mark.parametrize(("alias", "entry", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_entry_is_told_in_a_sentence(alias: str, entry: Any, sentence: str) -> None:
    with providers(mine=entry), pytest.raises(ConfigurationError, match=sentence) as error:
        get_provider(alias)
    assert "sk-1234567890" not in str(error.value)


def test_a_model_is_an_alias_and_a_name() -> None:
    assert split_model("openai:gpt-5-mini") == ("openai", "gpt-5-mini")
    assert split_model("local:llama3:8b") == ("local", "llama3:8b")


@pytest.mark.parametrize("model", ["gpt-5-mini", ":gpt-5-mini", "openai:"])
def test_a_model_without_alias_or_name_is_refused(model: str) -> None:
    with pytest.raises(ConfigurationError, match="write it as 'alias:name', the aliases are anthropic, openai"):
        split_model(model)


def in_a_fresh_process(code: str) -> str:
    setup = "import sys; from django.conf import settings; settings.configure(AGENTTURNS={})"
    ran = subprocess.run([sys.executable, "-c", f"{setup}\n{code}"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_importing_the_providers_imports_no_sdk() -> None:
    code = (
        "from agentturns.providers import get_provider\n"
        "[get_provider(alias) for alias in ('openai', 'anthropic', 'scripted')]\n"
        "print([name for name in ('openai', 'anthropic', 'httpx2') if name in sys.modules])"
    )
    assert in_a_fresh_process(code) == "[]"


def test_preloading_imports_the_sdks_of_all_aliases() -> None:
    code = (
        "from agentturns.providers import preload\n"
        "preload()\n"
        "print([name for name in ('openai', 'anthropic') if name in sys.modules])"
    )
    assert in_a_fresh_process(code) == "['openai', 'anthropic']"


def test_an_alias_that_cannot_be_made_does_not_stop_the_preloading() -> None:
    code = (
        "settings.AGENTTURNS = {'PROVIDERS': {'broken': {'BACKEND': 'no.such.Class'}}}\n"
        "from agentturns.providers import preload\n"
        "preload()\n"
        "print('openai' in sys.modules)"
    )
    assert in_a_fresh_process(code) == "True"
