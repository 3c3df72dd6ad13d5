"""The shop that every test here works with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from project.desk.models import Order
from tests.end_to_end.shop.clerks import declare_clerks
from tests.end_to_end.stage import Shop
from tests.llmock_server import LLMock, running_llmock
from tests.wire_server import WireServer, running_wire_server

OpenShop = Callable[..., Shop]
OPENAI = "agentturns.providers.openai.OpenAI"
ANTHROPIC = "agentturns.providers.anthropic.Anthropic"


@pytest.fixture(scope="session")
def llmock_process() -> Iterator[LLMock]:
    with running_llmock() as server:
        yield server


@pytest.fixture
def llmock(llmock_process: LLMock) -> LLMock:
    """A mock of both vendors, in a process of its own, that remembers nothing of earlier tests."""
    llmock_process.reset()
    return llmock_process


@pytest.fixture
def wire() -> Iterator[WireServer]:
    """A vendor that says exactly what it is told."""
    with running_wire_server() as server:
        yield server


@pytest.fixture
def open_shop(transactional_db: None, settings: Settings, tmp_path: Path) -> Iterator[OpenShop]:
    """``open_shop(openai_url, anthropic_url="", **agentturns)``: the shop, its clerks asking those addresses."""
    doors = []

    def opened(openai_url: str, anthropic_url: str = "", **agentturns: Any) -> Shop:
        openai = {"base_url": openai_url, "api_key": "sk-any-text-will-do", "pricing": "openai"}
        anthropic = {**openai, "base_url": anthropic_url, "pricing": "anthropic"}
        settings.AGENTTURNS = {
            "PROVIDERS": {
                "chat": {"BACKEND": OPENAI, "OPTIONS": {**openai, "api": "chat"}},
                "responses": {"BACKEND": OPENAI, "OPTIONS": {**openai, "api": "responses"}},
                "messages": {"BACKEND": ANTHROPIC, "OPTIONS": anthropic},
            },
            "LEASE_SECONDS": 2,
            "POLL_SECONDS": 0.02,
            **agentturns,
        }
        Order.objects.create(
            number="A-1001",
            customer="Ann",
            email="ann@example.com",
            item="Mug",
            paid_pence=1800,
            placed_on=date.today(),
        )
        shop = Shop(tmp_path, declare_clerks(), settings.AGENTTURNS)
        doors.append(shop.door)
        return shop

    yield opened
    for door in doors:
        door.open()
