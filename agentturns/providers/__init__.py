"""Model providers by alias. Importing this package loads no vendor's SDK."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from agentturns.conf import conf
from agentturns.exceptions import ConfigurationError
from agentturns.providers.base import Provider

logger = logging.getLogger("agentturns.providers")

_lock = threading.RLock()
_made: dict[str, Provider] = {}


def get_provider(alias: str) -> Provider:
    """The provider of ``alias``, made once per process and made anew when the settings change.

    Raises ``ConfigurationError`` for an alias that ``AGENTTURNS["PROVIDERS"]`` does not have, or whose entry is wrong.
    """
    with _lock:
        if alias not in _made:
            _made[alias] = _make(alias)
        return _made[alias]


def split_model(model: str) -> tuple[str, str]:
    """``"openai:gpt-5-mini"`` as alias and name. Raises ``ConfigurationError`` where either is missing."""
    alias, _, name = model.partition(":")
    if not alias or not name:
        raise ConfigurationError(f"The model {model!r} has no alias; write it as 'alias:name', {_aliases()}.")
    return alias, name


def preload() -> None:
    """Import the SDKs of all aliases, so that worker processes forked later share that memory."""
    for alias in conf.PROVIDERS:
        try:
            get_provider(alias).preload()
        except (ConfigurationError, ImportError) as error:
            # An alias that no agent uses must not keep the worker from starting; one that is used says so itself.
            logger.warning("provider=%s not_preloaded error=%s", alias, type(error).__name__)


def _make(alias: str) -> Provider:
    entry = conf.PROVIDERS.get(alias)
    if entry is None:
        raise ConfigurationError(f"There is no model provider with the alias {alias!r}; {_aliases()}.")
    where = f"AGENTTURNS['PROVIDERS'][{alias!r}]"
    options = entry.get("OPTIONS", {})
    if not isinstance(options, dict):
        raise ConfigurationError(f"{where}: OPTIONS is a {type(options).__name__}, but it is a dict.")
    backend = _backend(entry.get("BACKEND"), where)
    try:
        return backend(alias, **options)
    except TypeError as error:
        raise ConfigurationError(f"{where}: {error}.") from error


def _backend(path: Any, where: str) -> type[Provider]:
    if not isinstance(path, str):
        raise ConfigurationError(
            f"{where}: BACKEND is {path!r}; name a class, such as 'agentturns.providers.openai.OpenAI'."
        )
    try:
        backend = import_string(path)
    except ImportError as error:
        raise ConfigurationError(f"{where}: BACKEND {path!r} cannot be imported: {error}.") from error
    if not (isinstance(backend, type) and issubclass(backend, Provider)):
        raise ConfigurationError(f"{where}: BACKEND {path!r} is no subclass of agentturns.providers.base.Provider.")
    return backend


def _aliases() -> str:
    return f"the aliases are {', '.join(sorted(conf.PROVIDERS))}"


def _forget(*, setting: str = "AGENTTURNS", **_: Any) -> None:
    if setting == "AGENTTURNS":
        with _lock:
            _made.clear()


def _after_fork() -> None:
    """A child must share neither its parent's sockets nor a lock that another thread held when it was forked."""
    global _lock
    _lock = threading.RLock()
    _made.clear()


setting_changed.connect(_forget, dispatch_uid="agentturns.providers")
os.register_at_fork(after_in_child=_after_fork)
