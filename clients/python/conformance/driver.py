#!/usr/bin/env python3
"""The driver of the conformance suite for this package. With `--asyncio` all calls go through `tenure_client.aio`."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any, Callable

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src"))
import driver_asyncio

from tenure_client import Assignment, Event, Fleet, Lease, Membership, Tenure, TenureError

JSON = dict[str, Any]
OUT = threading.Lock()


def emit(line: JSON) -> None:
    with OUT:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


class Names:
    """Objects by the names that the runner sees."""

    def __init__(self, prefix: str) -> None:
        self._prefix, self._lock, self._objects = prefix, threading.Lock(), list[Any]()

    def add(self, item: Any) -> str:
        with self._lock:
            self._objects.append(item)
            return f"{self._prefix}{len(self._objects)}"

    def __getitem__(self, name: str) -> Any:
        return self._objects[int(name[len(self._prefix) :]) - 1]

    def all_of(self, item: Any) -> list[str]:
        with self._lock:
            return [f"{self._prefix}{n}" for n, other in enumerate(self._objects, 1) if other == item]


def session_json(session: Any) -> JSON:
    return {name: getattr(session, name) for name in ("session", "state", "connections", "data", "epoch")}


def provider_json(provider: Any) -> JSON:
    names = ("provider", "online", "alive", "active", "occupancy", "capacity")
    return {name: getattr(provider, name) for name in names}


class Driver:
    def __init__(self) -> None:
        self.client: Any = driver_asyncio.client() if "--asyncio" in sys.argv else Tenure()
        self.members, self.leases, self.follows = Names("h"), Names("l"), Names("f")
        self.fleets: dict[str, Fleet] = {}
        self.told = threading.Lock()  # An event follows the answer that names its handle.

    def on_ended(self, membership: Membership, tenure: str, reason: str) -> None:
        with self.told:
            for handle in self.members.all_of(membership):
                emit(
                    {
                        "event": "ended",
                        "handle": handle,
                        "member": membership.member,
                        "tenure": tenure,
                        "reason": reason,
                    }
                )

    def on_rejoined(self, membership: Membership) -> None:
        with self.told:
            for handle in self.members.all_of(membership):
                line = {"event": "rejoined", "handle": handle, "member": membership.member}
                emit({**line, "tenure": membership.tenure})

    def on_lease_lost(self, lease: Lease) -> None:
        with self.told:
            for name in self.leases.all_of(lease):
                emit({"event": "lease_lost", "lease_handle": name, "lease": lease.name, "token": lease.token})

    def join(self, a: JSON) -> JSON:
        with self.told:
            membership = self.client.join(
                a["group"],
                a["member"],
                ttl=a["ttl_ms"] / 1000,
                labels=a.get("labels"),
                rejoin=a.get("rejoin", True),
                on_ended=self.on_ended,
                on_rejoined=self.on_rejoined,
                on_lease_lost=self.on_lease_lost,
            )
            return {"handle": self.members.add(membership), "tenure": membership.tenure}

    def inherit(self, _: JSON) -> JSON:
        with self.told:
            membership = self.client.inherit(
                on_ended=self.on_ended, on_rejoined=self.on_rejoined, on_lease_lost=self.on_lease_lost
            )
            return {"handle": self.members.add(membership), "tenure": membership.tenure}

    def verdict(self, a: JSON) -> JSON:
        membership = self.members[a["handle"]]
        return {"verdict": membership.verdict(), "tenure": membership.tenure}

    def leave(self, a: JSON) -> JSON:
        self.members[a["handle"]].leave()
        return {}

    def members_(self, a: JSON) -> JSON:
        names = ("member", "tenure", "alive", "labels")
        return {"members": [{n: getattr(m, n) for n in names} for m in self.client.members(a["group"])]}

    def labels(self, a: JSON) -> JSON:
        self.members[a["handle"]].set_labels(a["labels"])
        return {}

    def claim(self, a: JSON) -> JSON:
        membership = self.members[a["handle"]]
        return {"outcome": membership.claim(a["registry"], a["key"], a.get("if_absent", False))}

    def release_claim(self, a: JSON) -> JSON:
        self.members[a["handle"]].release_claim(a["registry"], a["key"])
        return {}

    def owner(self, a: JSON) -> Any:
        claim = self.client.owner(a["group"], a["registry"], a["key"])
        return claim and {"owner": claim.owner, "tenure": claim.tenure, "alive": claim.alive}

    def acquire(self, a: JSON) -> JSON:
        lease = self.members[a["handle"]].acquire(a["lease"], a.get("wait_ms", 0) / 1000, a.get("holders", 1))
        with self.told:
            name = self.leases.add(lease)
            waited = int(lease.waited * 1000)
            return {
                "lease_handle": name,
                "token": lease.token,
                "place": lease.place,
                "generation": lease.generation,
                "waited_ms": waited,
            }

    def lease_verdict(self, a: JSON) -> JSON:
        lease = self.leases[a["lease_handle"]]
        return {"verdict": lease.verdict(), "token": lease.token}

    def release(self, a: JSON) -> JSON:
        self.leases[a["lease_handle"]].release(a.get("to"))
        return {}

    def lease(self, a: JSON) -> Any:
        lease = self.client.lease(a["group"], a["lease"])
        return lease and vars(lease)

    def work(self, a: JSON) -> JSON:
        lease, period = self.leases[a["lease_handle"]], a["period_ms"] / 1000

        def run() -> None:
            with open(a["file"], "a") as file:
                while True:
                    at = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
                    verdict = lease.verdict()
                    if verdict == "lost":
                        return
                    if verdict == "held":
                        file.write(f"{lease.token} {at}\n")
                        file.flush()
                    time.sleep(period)

        threading.Thread(target=run, daemon=True).start()
        return {}

    def fleet(self, a: JSON) -> JSON:
        file = open(a["file"], "a")  # noqa: SIM115
        period = a["period_ms"] / 1000

        def work(assignment: Assignment) -> None:
            while assignment.next_cycle(period):
                at = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
                if assignment.lease.verdict() == "held":
                    with OUT:
                        file.write(f"{assignment.target} {assignment.token} {at}\n")
                        file.flush()

        member = self.members[a["handle"]]
        self.fleets[a["handle"]] = Fleet(member, work, stability=a["stability_ms"] / 1000)
        return {}

    def drain(self, a: JSON) -> JSON:
        return {"stubborn": self.fleets[a["handle"]].drain()}

    def attach(self, a: JSON) -> JSON:
        grace = a["grace_ms"] / 1000 if "grace_ms" in a else None
        membership = self.members[a["handle"]]
        attached = membership.attach(a["session"], a["connection"], a.get("data"), grace)
        return {name: getattr(attached, name) for name in ("outcome", "epoch", "connections")}

    def detach(self, a: JSON) -> JSON:
        self.members[a["handle"]].detach(a["session"], a["connection"])
        return {}

    def session(self, a: JSON) -> Any:
        session = self.client.session(a["group"], a["session"])
        return session and session_json(session)

    def sessions(self, a: JSON) -> JSON:
        found = self.client.sessions(a["group"], a.get("state"), a.get("older_than_ms", 0) / 1000)
        return {"sessions": [session_json(session) for session in found]}

    def patch_session(self, a: JSON) -> JSON:
        if "handle" in a:
            return session_json(self.members[a["handle"]].patch_session(a["session"], a["data"]))
        return session_json(self.client.patch_session(a["group"], a["session"], a["data"]))

    def events(self, a: JSON) -> JSON:
        page = self.client.events(a["group"], a.get("after"), a.get("limit", 100))
        return {"items": [event.data for event in page.items], "next": page.next, "missed": page.missed}

    def follow(self, a: JSON) -> JSON:
        stream = self.client.follow(a["group"], a.get("after"))
        name = self.follows.add(stream)

        def run() -> None:
            for item in stream:
                if isinstance(item, Event):
                    emit({"event": "item", "follow": name, "item": item.data})
                else:
                    emit({"event": "gap", "follow": name})

        threading.Thread(target=run, daemon=True).start()
        return {"follow": name}

    def unfollow(self, a: JSON) -> JSON:
        self.follows[a["follow"]].close()
        return {}

    def provider_put(self, a: JSON) -> JSON:
        roster = self.client.roster(a["roster"])
        put = roster.put(a["provider"], capacity=a.get("capacity"), display_name=a.get("display_name"))
        return provider_json(put)

    def provider(self, a: JSON) -> Any:
        provider = self.client.roster(a["roster"]).get(a["provider"])
        return provider and provider_json(provider)

    def online(self, a: JSON) -> JSON:
        return provider_json(self.client.roster(a["roster"]).online(a["provider"]))

    def offline(self, a: JSON) -> JSON:
        return provider_json(self.client.roster(a["roster"]).offline(a["provider"]))

    def heartbeat(self, a: JSON) -> JSON:
        self.client.roster(a["roster"]).heartbeat(a["provider"])
        return {}

    def available(self, a: JSON) -> JSON:
        return {"providers": list(self.client.roster(a["roster"]).available())}

    def reserve(self, a: JSON) -> JSON:
        reserved = self.client.roster(a["roster"]).reserve(a.get("engagement"))
        return {"engagement": reserved.engagement, "provider": reserved.provider}

    def release_engagement(self, a: JSON) -> JSON:
        self.client.roster(a["roster"]).release(a["engagement"])
        return {}


def answer(run: Callable[[JSON], Any], request: JSON) -> None:
    try:
        emit({"id": request["id"], "ok": run(request)})
    except TenureError as error:
        retry = None if error.retry_after is None else round(error.retry_after * 1000)
        fields = {"code": error.code, "status": error.status, "outcome": error.outcome, "reason": error.reason}
        emit({"id": request["id"], "error": {**fields, "retry_after_ms": retry, "message": str(error)}})
    except Exception as error:
        emit({"id": request["id"], "error": {"code": "bad_command", "status": 0, "message": repr(error)}})
        raise


def main() -> None:
    driver = Driver()
    for line in sys.stdin:
        request = json.loads(line)
        name = "members_" if request["op"] == "members" else request["op"]
        run = getattr(driver, name)
        if name in ("verdict", "lease_verdict"):
            answer(run, request)
        else:
            threading.Thread(target=answer, args=(run, request), daemon=True).start()
    # Without a word to the daemon, as if it had crashed.
    os._exit(0)


if __name__ == "__main__":
    main()
