#!/usr/bin/env python3
"""A node of a fleet: it polls the targets whose leases it holds, and no other target.

Replace poll() by your own work; docs/guides/polling-fleet-http.md explains the rest.

    TENURE_STORE=http://127.0.0.1:7717 python3 fleet.py GROUP MEMBER

Exit codes: 0 it left, 3 its tenure ended (restart it to join again), 1 any other error.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src"))
from tenure_client import Lease, LeaseHeld, Membership, Target, Tenure, TenureError

EVERY = 1.0  # Seconds between two polls of a target, and between two reads of the targets.
PATIENCE = 5  # Reads for which a preferred node may fail to take its target before this node acts.


def poll(target: str, lease: Lease) -> None:
    # Pass the token to the storage that is written to, so that it can reject late writers.
    print("poll", target, lease.token, flush=True)


class Work:
    """The thread that polls one target."""

    def __init__(self, target: str, lease: Lease) -> None:
        self.lease, self.stop = lease, threading.Event()
        self.thread = threading.Thread(target=self._run, args=(target,), daemon=True)
        self.thread.start()

    def _run(self, target: str) -> None:
        while not self.stop.is_set():
            verdict = self.lease.verdict()  # Before each poll. No network access.
            if verdict == "lost":
                return
            if verdict == "held":
                poll(target, self.lease)
            self.stop.wait(EVERY)


class Fleet:
    """The work of this node."""

    def __init__(self, client: Tenure, member: Membership) -> None:
        self.client, self.member = client, member
        self.held: dict[str, Work] = {}
        # By target: consecutive reads in which it was free or held here, and preferred elsewhere.
        self.astray: dict[str, int] = {}

    def look(self) -> None:
        """Releases targets of other nodes and acquires those of this node. Reads all targets or fails."""
        targets = {target.target: target for target in self.client.targets(self.member.group)}
        for name, work in list(self.held.items()):
            is_over = work.stop.is_set() or not work.thread.is_alive()  # Stopped before, or poll() has failed.
            if is_over or name not in targets or targets[name].paused:
                self.give_up(name)
        for name, target in targets.items():
            if self.judge(target):
                try:
                    lease = self.member.acquire(name)
                except LeaseHeld:
                    continue
                self.astray[name] = 0
                self.held[name] = Work(name, lease)

    def judge(self, target: Target) -> bool:
        """Whether to acquire it. Only the lease decides which node works; `preferred` decides which node tries."""
        name, mine = target.target, target.tenure == self.member.tenure
        # Held by this tenure, but not in self.held: the reply to an acquire was lost.
        is_free = not target.paused and (mine or not target.alive)
        is_astray = target.preferred != self.member.member and (is_free or name in self.held)
        self.astray[name] = self.astray.get(name, 0) + 1 if is_astray else 0
        is_late = self.astray[name] > PATIENCE
        if name in self.held:
            if target.preferred and is_late:
                self.give_up(name, target.preferred)
            return False
        return is_free and (target.preferred == self.member.member or is_late)

    def give_up(self, name: str, to: str | None = None) -> None:
        """Stops the work, then releases the lease. Work that does not stop keeps its lease until it does."""
        work = self.held[name]
        work.stop.set()
        self.astray[name] = 0
        work.thread.join(0.2)
        if not work.thread.is_alive():
            del self.held[name]
            work.lease.release(to)

    def drain(self) -> None:
        """Marks this node as draining, stops its work, and releases its leases."""
        self.member.claim("fleet.draining", self.member.member)
        for work in self.held.values():
            work.stop.set()
        while self.held:
            for name in list(self.held):
                self.give_up(name)


def main() -> int:
    group, name = sys.argv[1:3]
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    client = Tenure()
    ttl = float(os.environ.get("TENURE_TTL", "30s").removesuffix("s"))
    member = client.join(group, name, ttl=ttl, rejoin=False)
    fleet = Fleet(client, member)
    while not stop.wait(EVERY):
        if member.verdict() == "lost":
            print("lost", member.ended or "not confirmed in time", flush=True)
            return 3
        try:
            fleet.look()
        except TenureError as error:
            print("not looked:", error, flush=True)  # Work on held leases continues while the verdict is held.
    fleet.drain()
    member.leave()
    print("left", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TenureError as error:
        print("failed:", error, file=sys.stderr)
        sys.exit(1)
