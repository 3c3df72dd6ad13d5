"""What a process must see to before and after it forks."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from django.db import connections

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def leave_databases() -> None:
    """Close what must not be shared with a forked process: connections, and the pools that hold them."""
    for connection in connections.all(initialized_only=True):
        connection.close()
        if connection.settings_dict["OPTIONS"].get("pool") and hasattr(connection, "close_pool"):
            connection.close_pool()


def children_die_with_this_process() -> None:
    """Have the kernel, where it can, kill the children that this process is going to fork when it dies itself."""
    if sys.platform != "linux":
        return
    libc, parent = ctypes.CDLL(None), os.getpid()

    def after_fork() -> None:
        if os.getppid() == parent:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    os.register_at_fork(after_in_child=after_fork)
