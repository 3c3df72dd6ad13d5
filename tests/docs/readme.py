"""README.md and docs/operations.md as the tests read them: their sections, code blocks and tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


@dataclass(frozen=True)
class Block:
    """One fenced block: its language and its lines."""

    language: str
    code: str

    @property
    def file(self) -> str:
        """The path that a first line such as ``# shop/agents.py`` names, else ""."""
        named = re.match(r"# ([\w/]+\.py)(: add at the end)?\n", self.code)
        return named[1] if named else ""

    @property
    def is_addition(self) -> bool:
        """Whether the block goes to the end of a file that is there already."""
        return ": add at the end\n" in self.code.split("\n", 1)[0] + "\n"


def section(heading: str, page: str = TEXT) -> str:
    """What stands under ``## heading``, in README.md unless another page's text is given."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    assert found, f"there is no section {heading!r}"
    return found[1]


def blocks(text: str) -> list[Block]:
    """The fenced blocks of ``text``, in order."""
    return [Block(language, code) for language, code in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)]


def first_column(text: str) -> list[str]:
    """The backticked words in the first column of the tables of ``text``, in order."""
    without_headings = re.sub(r"^\|.*\n\|[-|]+\|$", "", text, flags=re.M)
    rows = re.findall(r"^\| (`.*?) \|", without_headings, re.M)
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]
