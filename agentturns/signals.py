"""Signals, sent with ``sender=Turn`` and ``turn=`` after the change is committed, at most once each.

A receiver that raises is logged and changes nothing (``send_robust``). A process that dies between its
commit and the sending loses the signal: rows are the truth, signals are a convenience.
"""

from django.dispatch import Signal

turn_started = Signal()  # a worker took the turn up for the first time
turn_parked = Signal()  # turn.park_reason says why
turn_resumed = Signal()  # a person, or an answered wait, put the parked turn back in the queue
turn_finished = Signal()  # turn.status is completed, failed or canceled
step_finished = Signal()  # step=: the completed Step
tool_budget_warned = Signal()  # remaining=: the threshold crossed, max=: the cap
budget_raised = Signal()  # changes=: {cap: (old, new)}, by=: the user or None
# tool_call=: the ToolCall, decision=: approved, declined, answered, rerun, confirmed or expired
tool_call_decided = Signal()
