#!/usr/bin/env python3
"""A member of a group in Python, with only the standard library.

It joins, sends heartbeats in the background, claims a device, acquires a lease, works while its verdict is held, and
leaves on TERM or INT. Copy the class Tenure into your program; main() is an example worker.

    TENURE_STORE=http://127.0.0.1:7717 python3 client.py GROUP MEMBER

Exit codes: 0 it left, 3 its tenure ended (restart it to join again), 1 any other error.
"""

import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request

URL = os.environ.get("TENURE_STORE") or os.environ.get("TENURE_URL") or "http://127.0.0.1:7717"
if "TENURE_URL" in os.environ:
    print("TENURE_URL is an old name: use TENURE_STORE", file=sys.stderr)
TOKEN = os.environ.get("TENURE_TOKEN", "")


class Refused(Exception):
    """An error response of the daemon. Programs check `code`."""

    def __init__(self, status, problem):
        super().__init__(problem.get("detail", f"status {status}"))
        self.status = status
        self.code = problem.get("code", "")
        self.reason = problem.get("reason", "")
        self.retry_after = problem.get("retry_after_ms", 500) / 1000


def call(method, path, body=None, timeout=0.5):
    """Makes one call. After an OSError the outcome is unknown."""
    request = urllib.request.Request(URL + path, method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    if TOKEN:
        request.add_header("Authorization", f"Bearer {TOKEN}")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        try:
            problem = json.loads(error.read())
        except ValueError:
            problem = {}
        raise Refused(error.code, problem) from None


def now():
    """Seconds on a clock that includes suspend, unlike time.monotonic()."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Tenure:
    """This process as a member, from its join until its tenure ends."""

    def __init__(self, group, member, ttl=30.0):
        self.group, self.ttl, self.margin = f"/v1/groups/{group}", ttl, ttl / 12
        # The ttl runs from the time at which the last confirmed call was *sent*, which is before the store's start of it.
        sent = now()
        joined = call("POST", f"{self.group}/members", {"member": member, "ttl_ms": int(ttl * 1000)})
        self.id, self.confirmed, self.ended = joined["tenure"], sent, ""
        self.stop = threading.Event()
        self.beats = threading.Thread(target=self._beat, daemon=True)
        self.beats.start()

    def verdict(self):
        """held: work. uncertain: pause. lost: stop for good. No network access."""
        age = now() - self.confirmed
        if self.ended or age >= self.ttl:
            return "lost"
        return "held" if age < self.ttl - self.margin else "uncertain"

    def _beat(self):
        pause = self.ttl / 3
        while not self.stop.wait(pause):
            sent = now()
            try:
                call("PUT", f"{self.group}/tenures/{self.id}/beat", timeout=min(0.5, self.ttl / 6))
                # A reply that arrives after the ttl does not revive the tenure.
                if self.verdict() == "lost":
                    return
                self.confirmed, pause = sent, self.ttl / 3
            except (OSError, ValueError, Refused) as error:
                if getattr(error, "code", "") == "tenure_ended":
                    self.ended = error.reason
                    return
                pause = self.ttl / 12  # No reply is not a refusal: retry sooner.

    def claim(self, registry, key):
        """Claims the key for this member, also from a previous owner."""
        call("PUT", f"{self.group}/registries/{registry}/claims/{key}", {"tenure": self.id})

    def acquire(self, lease):
        """Returns the fencing token if the lease was granted, None while it is held by another member."""
        try:
            return call("POST", f"{self.group}/leases/{lease}/acquire", {"tenure": self.id})["token"]
        except Refused as refused:
            if refused.code in ("lease_held", "unsettled"):
                return None
            raise

    def release(self, lease, token):
        """Releases the lease. Stop the work first."""
        call("POST", f"{self.group}/leases/{lease}/release", {"tenure": self.id, "token": token})

    def leave(self):
        """Ends the tenure and releases everything it holds."""
        self.stop.set()
        self.beats.join()
        self.ended = self.ended or "left"
        call("DELETE", f"{self.group}/tenures/{self.id}")


def main():
    group, member = sys.argv[1:3]
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())

    tenure = Tenure(group, member, ttl=float(os.environ.get("TENURE_TTL", "30s").removesuffix("s")))
    print("joined", tenure.id, flush=True)
    tenure.claim("devices", f"device-of-{member}")
    token, before = None, ""
    while not stop.wait(0.1):
        verdict = tenure.verdict()
        if verdict == "lost":
            print("lost", tenure.ended or "not confirmed in time", flush=True)
            return 3
        if verdict == "uncertain":
            if before != verdict:
                print("paused", flush=True)
        elif token is None:
            try:
                token = tenure.acquire("report")
            except OSError:
                continue  # It may have been granted; a repeated acquire under the same tenure returns it.
        else:
            # Pass the token to the storage that is written to, so that it can reject late writers.
            print("work", token, flush=True)
        before = verdict
    if token is not None:
        tenure.release("report", token)
    tenure.leave()
    print("left", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, Refused) as error:
        print("failed:", error, file=sys.stderr)
        sys.exit(1)
