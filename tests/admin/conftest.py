"""An operator with every verb, a viewer with none, and their browsers."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.admin.operators import VERBS, VIEWS, browser_of, staff


@pytest.fixture
def operator(db: None) -> User:
    return staff("olga", *VIEWS, *VERBS)


@pytest.fixture
def viewer(db: None) -> User:
    return staff("victor", *VIEWS)


@pytest.fixture
def browser(operator: User) -> Client:
    return browser_of(operator)


@pytest.fixture
def viewers_browser(viewer: User) -> Client:
    return browser_of(viewer)
