"""Runs one command for as long as its own stdin stays open, and leaves nothing of it behind.

Started as a program: ``python leash.py SECONDS COMMAND…``. Whoever started it holds the other end of stdin. When that
end closes, by intent or because its holder died, even of SIGKILL, the command gets SIGTERM, and what is left of its
session after SECONDS gets SIGKILL. A byte on stdin means SIGKILL at once. The exit code is the command's, or 128 and
the number of the signal that ended it.

It imports nothing of the project, so it starts in no time.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

LOOK_SECONDS = 0.05


def run(command: list[str], patience: float) -> int:
    """Hold ``command``, in a session of its own, on the leash of stdin; its return code once all of it is gone."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    # From here on only the leash counts; set earlier, the command would inherit it.
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    try:
        if _pulled(process) == "stop":
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
    finally:
        _kill_session(process.pid)
        process.wait()
    return process.returncode


def _pulled(process: subprocess.Popen[bytes]) -> str:
    """What ends the wait: "stop", "kill", or "" when the command ended by itself."""
    while process.poll() is None:
        if select.select([0], [], [], LOOK_SECONDS)[0]:
            return "kill" if os.read(0, 1) else "stop"
    return ""


def _kill_session(session: int) -> None:
    """Kill every process of the session, and wait until they are gone."""
    ends_at = time.monotonic() + 5
    while time.monotonic() < ends_at:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
        left = [pid for pid in _members(session) if pid != session]
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_SECONDS / 5)


def _members(session: int) -> list[int]:
    """The living processes of a session, where the system tells; the group of its leader is killed anyway."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # "pid (name) state ppid pgrp session …", where the name may hold anything.
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


if __name__ == "__main__":
    code = run(sys.argv[2:], float(sys.argv[1]))
    sys.exit(code if code >= 0 else 128 - code)
