"""Where Anthropic's prompt cache is told to keep what has been read, so that the next request reads it from there.

The vendor caches up to a marked block. It takes four marks, and from a mark it looks back over twenty blocks only. So
the tools, the system prompt, the end of the request before this one (which is read) and the end of this one (which is
written) are marked. All follow from the conversation alone: equal rows, equal marks.
"""

from __future__ import annotations

from typing import Any, Final

MARK: Final = {"type": "ephemeral"}
LOOKBACK: Final = 20
# Thoughts, and blocks not heard of, take no mark.
MARKABLE: Final = ("text", "tool_use", "tool_result")


def mark(body: dict[str, Any], earlier: int) -> None:
    """Set the marks in a request's body. ``earlier`` is the number of blocks that the request before it had."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    anchors = _anchors(blocks, earlier)
    system, tools = body.get("system"), body.get("tools")
    if system:
        system[-1]["cache_control"] = MARK
    # The system prompt's mark covers the tools too. Only where a fourth mark is needed below, theirs has to go.
    if tools and not (system and len(anchors) > 2):
        tools[-1]["cache_control"] = MARK
    for anchor in anchors:
        blocks[anchor]["cache_control"] = MARK


def _anchors(blocks: list[dict[str, Any]], earlier: int) -> list[int]:
    """The places in the conversation to mark: what was marked last time, the end, and one between them if far apart."""
    markable = [place for place, block in enumerate(blocks) if block.get("type") in MARKABLE]
    if not markable:
        return []
    newest = markable[-1]
    before = next((place for place in reversed(markable) if place < min(earlier, newest)), None)
    if before is None:
        return [newest]
    if newest - before <= LOOKBACK:
        return [before, newest]
    between = next(place for place in markable if place >= newest - LOOKBACK)
    return [before, newest] if between == newest else [before, between, newest]
