#!/usr/bin/env python3
"""A member of a group in Python, with nothing but its standard library.

It joins, beats in the background, claims a device, asks for a lease, works for as long as that is certainly its own,
and leaves on TERM or INT. Take the class Tenure into your program; main() is a worker that shows how it is used.

    TENURE_STORE=http://127.0.0.1:7717 python3 client.py GROUP MEMBER

Exit codes: 0 it left, 3 its tenure is over (start it again, and it joins anew), 1 anything else.
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
    """An answer of the daemon that says no: `code` is what a program looks at."""

    def __init__(self, status, problem):
        super().__init__(problem.get("detail", f"status {status}"))
        self.status = status
        self.code = problem.get("code", "")
        self.reason = problem.get("reason", "")
        self.retry_after = problem.get("retry_after_ms", 500) / 1000


def call(method, path, body=None, timeout=0.5):
    """One call. OSError means that nobody knows whether it took effect."""
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
    """Seconds on a clock that counts while the machine sleeps; time.monotonic() does not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Tenure:
    """This process as a member: from join() until it leaves, or until its tenure is over."""

    def __init__(self, group, member, ttl=30.0):
        self.group, self.ttl, self.margin = f"/v1/groups/{group}", ttl, ttl / 12
        # A whole ttl counts from when the last call that was confirmed was *sent*: the store counts from later.
        sent = now()
        joined = call("POST", f"{self.group}/members", {"member": member, "ttl_ms": int(ttl * 1000)})
        self.id, self.confirmed, self.ended = joined["tenure"], sent, ""
        self.stop = threading.Event()
        self.beats = threading.Thread(target=self._beat, daemon=True)
        self.beats.start()

    def verdict(self):
        """held: act. uncertain: pause. lost: over, for ever. Asks nobody."""
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
                # An answer that comes after our time is over revives nothing.
                if self.verdict() == "lost":
                    return
                self.confirmed, pause = sent, self.ttl / 3
            except (OSError, ValueError, Refused) as error:
                if getattr(error, "code", "") == "tenure_ended":
                    self.ended = error.reason
                    return
                pause = self.ttl / 12  # Not answered is not refused: try again, sooner.

    def claim(self, registry, key):
        """Says that the key is ours. Whoever had it has it no more."""
        call("PUT", f"{self.group}/registries/{registry}/claims/{key}", {"tenure": self.id})

    def acquire(self, lease):
        """The fencing token when the lease is ours now, None while somebody else has it."""
        try:
            return call("POST", f"{self.group}/leases/{lease}/acquire", {"tenure": self.id})["token"]
        except Refused as refused:
            if refused.code in ("lease_held", "unsettled"):
                return None
            raise

    def release(self, lease, token):
        """Gives the lease up, after the work has ended."""
        call("POST", f"{self.group}/leases/{lease}/release", {"tenure": self.id, "token": token})

    def leave(self):
        """Ends the tenure; whatever it still holds is released."""
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
                continue  # Perhaps it is ours by now: asked again under the same tenure, it says so.
        else:
            # Give the token to whatever is written to, so that it can refuse whoever comes late.
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
