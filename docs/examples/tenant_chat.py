"""A chat assistant for many tenants: what a request knows goes to the tools, and never through the model.

Run it from the repository's root: ``python docs/examples/tenant_chat.py``. No key is needed.
"""

# Django must be set up before models are declared, which an app need not think of.
# ruff: noqa: E402, DJ008

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from temporary_project import create_tables, start

start()

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_required
from django.db import models
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.test import Client
from django.urls import path
from django.views.decorators.http import require_POST

from agentturns import Agent, Limits, Session, Turn, TurnState, tool
from agentturns.testing import ScriptedModel, drain, reply

# -- models.py ---------------------------------------------------------------------------------------------------------


class Invoice(models.Model):
    """An invoice of one tenant."""

    tenant = models.CharField(max_length=50)
    number = models.CharField(max_length=20)
    due_pence = models.PositiveIntegerField()

    class Meta:
        app_label = "tenant_chat"


# -- agents.py ---------------------------------------------------------------------------------------------------------


def instructions(state: TurnState) -> str:
    """Rendered once a turn, from what the caller said of the request."""
    return f"You help {state.tenant} with invoices. Answer in the language {state.turn_context['language']!r}."


@tool(effect="idempotent")
def open_invoices(state: TurnState) -> list[dict[str, Any]]:
    """List the open invoices. Amounts are in pence."""
    # The model cannot name a tenant: ``state`` is no part of what it may fill in.
    return list(Invoice.objects.filter(tenant=state.tenant).order_by("number").values("number", "due_pence"))


def script(request: Any) -> Any:
    """Stands in for a model: looks the invoices up when they are asked for, and remembers what was said before."""
    questions = [message["content"] for message in request.messages if message["role"] == "user"]
    if "thank" in questions[-1]:
        return reply(f"You are welcome. We spoke of: {questions[0]}", input_tokens=900, output_tokens=30, cost="0.003")
    if request.messages[-1]["role"] == "user":
        return reply(tool_calls=[("open_invoices", {})], input_tokens=300, output_tokens=20, cost="0.001")
    found = json.loads(request.messages[-1]["content"])
    listed = ", ".join(f"{invoice['number']} ({invoice['due_pence']} pence)" for invoice in found)
    return reply(f"Open: {listed}.", input_tokens=500, output_tokens=60, cost="0.002")


assistant = Agent(
    name="tenant-chat",
    model=ScriptedModel(script, name="tenant-chat"),  # yours: "anthropic:claude-sonnet-5"
    instructions=instructions,
    tools=[open_invoices],
    limits=Limits(max_cost=Decimal("0.05"), timeout=60),
)


# -- views.py ----------------------------------------------------------------------------------------------------------


def tenant_of(request: HttpRequest) -> str:
    """Yours: however your project tells tenants apart. Here, by the first word of the host."""
    return request.get_host().partition(".")[0]


@require_POST
@login_required
def chat(request: HttpRequest) -> JsonResponse:
    """Take a message: the first opens a session, the next ones name it."""
    text, told = request.POST.get("text", ""), {"language": request.headers.get("Accept-Language", "en")}
    try:
        if "session" in request.POST:
            # Looked up by tenant and user, so that nobody writes into another's conversation.
            mine = Session.objects.filter(agent=assistant.name, tenant=tenant_of(request), user=request.user)
            turn = get_object_or_404(mine, pk=request.POST["session"]).send(text, context=told)
        else:
            turn = assistant.start(text, tenant=tenant_of(request), user=request.user, context=told)
    except ValueError as refused:  # empty, or larger than MAX_INPUT_BYTES
        return JsonResponse({"error": str(refused)}, status=400)
    return JsonResponse({"session": turn.session_id, "turn": turn.pk}, status=202)


@login_required
def answer(request: HttpRequest, turn: int) -> JsonResponse:
    """What became of a message, for the page to poll."""
    mine = Turn.objects.for_tenant(tenant_of(request)).filter(user=request.user)
    found = get_object_or_404(mine, pk=turn)
    return JsonResponse({"status": found.status, "answer": found.answer, "waiting_for": found.waiting_for})


urlpatterns = [path("chat/", chat), path("chat/<int:turn>/", answer)]

# -- what happens ------------------------------------------------------------------------------------------------------


def browser(tenant: str, person: str) -> Client:
    """A person's browser, logged in at one tenant's address."""
    client = Client(headers={"host": f"{tenant}.localhost", "accept-language": "de"})
    client.force_login(get_user_model().objects.create_user(person))
    return client


def main() -> None:
    settings.ROOT_URLCONF = __name__
    create_tables(Invoice)
    Invoice.objects.create(tenant="acme", number="AC-1", due_pence=12000)
    Invoice.objects.create(tenant="acme", number="AC-2", due_pence=700)
    Invoice.objects.create(tenant="globex", number="GL-1", due_pence=4200)
    acme, globex = browser("acme", "anna"), browser("globex", "georg")

    first = acme.post("/chat/", {"text": "Which invoices are open?"}).json()
    other = globex.post("/chat/", {"text": "Which invoices are open?"}).json()
    drain()
    print("acme:  ", acme.get(f"/chat/{first['turn']}/").json()["answer"])
    print("globex:", globex.get(f"/chat/{other['turn']}/").json()["answer"])

    second = acme.post("/chat/", {"text": "Ah, thank you", "session": first["session"]}).json()
    drain()
    print("acme:  ", acme.get(f"/chat/{second['turn']}/").json()["answer"])
    print("globex reads that turn:     ", globex.get(f"/chat/{second['turn']}/").status_code)
    print("globex writes to that session:", globex.post("/chat/", {"text": "Hi", **first}).status_code)
    print("acme says nothing:          ", acme.post("/chat/", {"text": " "}).json()["error"])

    for row in Turn.objects.spend_by("tenant"):
        print(f"{row['tenant']}: {row['turns']} turns, {row['steps']} model calls, ${row['cost']:.4f}")
    print("The model was told:", Turn.objects.get(pk=second["turn"]).instructions)


if __name__ == "__main__":
    main()
