"""A nightly report over 500 rows under one cap of $0.25: one turn whose tool pages through the rows.

Each page makes the conversation longer and the next model call dearer, so the last pages cross the cap. The turn
parks with all it has read; after a raise it reads the next page, not the first.

Run it from the repository's root: ``python docs/examples/nightly_report.py``. No key is needed.
"""

# Django must be set up before models are declared, which an app need not think of.
# ruff: noqa: E402, DJ008

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from decimal import Decimal
from typing import Any

from temporary_project import create_tables, start

start()

from django.db import models

from agentturns import Agent, Limits, Turn, TurnState, tool
from agentturns.testing import ScriptedModel, drain, reply

PAGE_ROWS = 25

# -- models.py ---------------------------------------------------------------------------------------------------------


class Sale(models.Model):
    """One sale of the day."""

    day = models.DateField()
    region = models.CharField(max_length=10)
    pence = models.PositiveIntegerField()

    class Meta:
        app_label = "nightly_report"


class Report(models.Model):
    """The report of one night."""

    day = models.DateField(unique=True)
    totals = models.JSONField()
    turn = models.ForeignKey("agentturns.Turn", on_delete=models.PROTECT)

    class Meta:
        app_label = "nightly_report"


# -- agents.py ---------------------------------------------------------------------------------------------------------

read: Counter[int] = Counter()  # how often each page was read, to show that none is read twice


@tool(effect="idempotent")
def read_sales(page: int, state: TurnState) -> dict[str, Any]:
    """Read one page of the day's sales, pages from 1. The result says how many pages there are."""
    read[page] += 1
    # The day comes from whoever started the turn, never from the model.
    rows = Sale.objects.filter(day=state.turn_context["day"]).order_by("pk")
    shown = rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    return {"pages": -(-rows.count() // PAGE_ROWS), "sales": [[sale.region, sale.pence] for sale in shown]}


@tool(effect="transactional")
def save_report(pence_by_region: dict[str, int], state: TurnState) -> str:
    """Save the day's report: total pence by region."""
    Report.objects.create(day=state.turn_context["day"], totals=pence_by_region, turn_id=state.turn.pk)
    return "saved"


def script(request: Any) -> Any:
    """Stands in for a model: reads page after page, adds up what it was shown, saves it, answers."""
    results = [message for message in request.messages if message["role"] == "tool"]
    pages = [json.loads(result["content"]) for result in results if result["name"] == "read_sales"]
    # As a model at $1 a million input tokens and $5 a million output tokens would, for 1,600 tokens a page.
    tokens = {"input_tokens": 600 + 1_600 * len(pages), "output_tokens": 40}
    priced = {**tokens, "cost": (tokens["input_tokens"] * 1 + tokens["output_tokens"] * 5) * Decimal("0.000001")}
    if not pages or len(pages) < pages[0]["pages"]:
        return reply(tool_calls=[("read_sales", {"page": len(pages) + 1})], **priced)
    totals: Counter[str] = Counter()
    for region, pence in (sale for page in pages for sale in page["sales"]):
        totals[region] += pence
    if results[-1]["name"] == "read_sales":
        return reply(tool_calls=[("save_report", {"pence_by_region": totals})], **priced)
    best = max(totals, key=lambda region: totals[region])
    return reply(f"{sum(len(page['sales']) for page in pages)} sales; {best} sold most.", **priced)


reporter = Agent(
    name="nightly-report",
    model=ScriptedModel(script, name="nightly-report"),  # yours: "openai:gpt-5-mini"
    instructions="Read every page of the day's sales, save the totals by region, and answer in one sentence.",
    tools=[read_sales, save_report],
    limits=Limits(max_cost=Decimal("0.25"), max_steps=100),
)


def run_nightly(day: date) -> Turn:
    """What the scheduler calls. The key makes a second call the same night return the same turn."""
    return reporter.start(f"Report of {day}", context={"day": day.isoformat()}, key=f"report-{day}")


# -- what happens ------------------------------------------------------------------------------------------------------


def figures(turn: Turn) -> str:
    spent = f"${turn.cost:.4f} of ${turn.limit('max_cost')}"
    return f"{turn.status}, {turn.step_count} model calls, {turn.tool_call_count} tool calls, {spent}"


def main() -> None:
    create_tables(Sale, Report)
    day = date(2026, 11, 30)
    regions = ("north", "south", "east", "west")
    Sale.objects.bulk_create(
        Sale(day=day, region=regions[number % 4], pence=500 + number * 7 % 1000) for number in range(500)
    )

    turn = run_nightly(day)
    assert run_nightly(day) == turn
    drain()
    turn.refresh_from_db()
    print(f"At the cap:      {figures(turn)}")
    print(f"It waits:        {turn.waiting_for}")
    print(f"Pages read:      {len(read)} of 20, report rows: {Report.objects.count()}")

    # In the admin: "Raise budget and resume". The agent's own limit stays at $0.25.
    turn.raise_budget(max_cost="0.40", reason="a busy day")
    drain()
    turn.refresh_from_db()
    print(f"After the raise: {figures(turn)}")
    print(f"Pages read:      {len(read)} of 20, none twice: {set(read.values()) == {1}}")
    print(f"Answer:          {turn.answer}")
    print(f"Report:          {Report.objects.get(day=day).totals}")
    spend = Turn.objects.spend()
    print(f"Tokens:          {spend['input_tokens']:,} in, {spend['output_tokens']:,} out")


if __name__ == "__main__":
    main()
