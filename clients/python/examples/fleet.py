#!/usr/bin/env python3
"""A node of a fleet: it polls the targets whose leases it holds, and no other target.

    TENURE_STORE=http://127.0.0.1:7717 python3 fleet.py GROUP MEMBER

Exit codes: 0 it left, 3 its tenure ended (restart it to join again), 1 any other error.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src"))
from tenure_client import Assignment, Fleet, Tenure, TenureError

EVERY = 1.0  # Seconds between two polls of a target.


def work(assignment: Assignment) -> None:
    while assignment.next_cycle(EVERY):
        # Pass the token to the storage that is written to, so that it can reject late writers.
        print("poll", assignment.target, assignment.token, flush=True)


def main() -> int:
    group, name = sys.argv[1:3]
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    ttl = float(os.environ.get("TENURE_TTL", "30s").removesuffix("s"))
    member = Tenure().join(group, name, ttl=ttl, rejoin=False, patience=60)
    fleet = Fleet(member, work)
    while not stop.wait(0.2):
        if member.verdict() == "lost":
            print("lost", member.ended or "not confirmed in time", flush=True)
            return 3
    if fleet.drain():
        return 1  # Its work did not end: its leases are free after its ttl.
    member.leave()
    print("left", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TenureError as error:
        print("failed:", error, file=sys.stderr)
        sys.exit(1)
