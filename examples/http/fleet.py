#!/usr/bin/env python3
"""A node of a fleet in Python: it polls the targets whose leases it holds, and no other target.

It needs client.py beside it, which sends the heartbeats and returns the verdict. Replace poll() by your own work;
docs/guides/polling-fleet-http.md explains the rest.

    TENURE_STORE=http://127.0.0.1:7717 python3 fleet.py GROUP MEMBER

Exit codes: 0 it left, 3 its tenure ended (restart it to join again), 1 any other error.
"""

import os
import signal
import sys
import threading
from urllib.parse import quote

from client import Refused, Tenure, call

EVERY = 1.0  # Seconds between two polls of a target, and between two reads of the targets.
PATIENCE = 5  # Reads for which a preferred node may fail to take its target before this node acts.


class Fleet:
    """The work of this node: one thread per held lease."""

    def __init__(self, tenure, poll):
        self.tenure, self.poll, self.member = tenure, poll, tenure.id.split("@")[0]
        self.held = {}  # target: (token, the event that stops its thread, the thread)
        self.astray = {}  # target: consecutive reads in which it was free or held here, and preferred elsewhere

    def look(self):
        """Releases targets of other nodes and acquires those of this node. Reads all targets or fails."""
        targets, after = {}, ""
        while after is not None:
            page = call("GET", f"{self.tenure.group}/targets?limit=1000&after={quote(after)}")
            targets.update((target["target"], target) for target in page["targets"])
            after = page.get("next")
        for name, (_, stop, thread) in list(self.held.items()):
            is_over = stop.is_set() or not thread.is_alive()  # Stopped before, or poll() has failed.
            if is_over or name not in targets or targets[name]["paused"]:
                self.give_up(name)
        wanted = [name for name, target in targets.items() if self.judge(name, target)]
        if wanted:
            body = {"tenure": self.tenure.id, "leases": wanted}
            for answer in call("POST", f"{self.tenure.group}/leases-acquire", body)["results"]:
                if answer["outcome"] in ("granted", "kept"):
                    self.begin(answer["lease"], answer["token"])

    def judge(self, name, target):
        """Whether to acquire this target. Only the lease decides which node works; `preferred` decides which node tries."""
        preferred, mine = target.get("preferred"), target.get("tenure") == self.tenure.id
        # Held by this tenure, but not in self.held: the reply to an acquire was lost.
        is_free = not target["paused"] and (mine or not target.get("alive"))
        is_astray = preferred != self.member and (is_free or name in self.held)
        self.astray[name] = self.astray.get(name, 0) + 1 if is_astray else 0
        is_late = self.astray[name] > PATIENCE
        if name in self.held:
            if not mine or self.held[name][0] != target["token"]:
                self.give_up(name)  # An operator or a loss of data took the lease.
            elif preferred and is_late:
                self.give_up(name, preferred)
            return False
        return is_free and (preferred == self.member or is_late)

    def begin(self, name, token):
        stop, self.astray[name] = threading.Event(), 0
        thread = threading.Thread(target=self.work, args=(name, token, stop), daemon=True)
        self.held[name] = (token, stop, thread)
        thread.start()

    def work(self, name, token, stop):
        while not stop.is_set():
            if self.tenure.verdict() == "held":  # Before each poll. No network access.
                self.poll(name, token)
            stop.wait(EVERY)

    def give_up(self, name, to=None):
        """Stops the work, then releases the lease. Work that does not stop keeps its lease until it does."""
        token, stop, thread = self.held[name]
        stop.set()
        self.astray[name] = 0
        thread.join(0.2)
        if not thread.is_alive():
            body = {"tenure": self.tenure.id, "token": token, **({"to": to} if to else {})}
            try:
                call("POST", f"{self.tenure.group}/leases/{name}/release", body)
            except Refused as refused:
                if refused.code != "not_holder":
                    raise
            # Only after the reply: an unanswered release may take effect later, so its token is not used again.
            del self.held[name]

    def drain(self):
        """Marks this node as draining, stops its work, and releases its leases."""
        self.tenure.claim("fleet.draining", self.member)
        for _, stop, _ in self.held.values():
            stop.set()
        while self.held:
            for name in list(self.held):
                self.give_up(name)


def main():
    group, member = sys.argv[1:3]
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    tenure = Tenure(group, member, ttl=float(os.environ.get("TENURE_TTL", "30s").removesuffix("s")))
    # Pass the token to the storage that is written to, so that it can reject late writers.
    fleet = Fleet(tenure, lambda target, token: print("poll", target, token, flush=True))
    while not stop.wait(EVERY):
        if tenure.verdict() == "lost":
            print("lost", tenure.ended or "not confirmed in time", flush=True)
            return 3
        try:
            fleet.look()
        except (OSError, Refused) as error:
            print("not looked:", error, flush=True)  # Work on held leases continues while the verdict is held.
    fleet.drain()
    tenure.leave()
    print("left", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, Refused) as error:
        print("failed:", error, file=sys.stderr)
        sys.exit(1)
