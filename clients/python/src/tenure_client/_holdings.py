"""What a membership holds, compared with the store by the revision of each beat."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable

from ._clock import now
from ._http import ATTEMPT, Answer, path
from ._worker import Worker
from .errors import TenureEnded, TenureError, ended
from .lease import LOST, Lease

if TYPE_CHECKING:
    from .membership import Membership

_PART = 500
_READS = 4


class Holdings:
    """Leases, claims and connections. Its fields are guarded by the lock of the membership."""

    def __init__(self, membership: Membership) -> None:
        self._membership, self._lock, self._http = membership, membership._lock, membership._http
        self._worker = Worker(f"tenure-holdings-{membership.member}")
        self._acts = 0
        self.is_doubted = False
        """Leases are uncertain until they have been listed."""
        self._leases: set[Lease] = set()
        self._asking: Counter[str] = Counter()
        # Leases that may be ours at the store, without a Lease here, and from when on a listing is certain.
        self._perhaps: dict[str, float] = {}
        self._claims: dict[tuple[str, str], str] = {}  # With the tenure under which they were claimed.
        self._connections: dict[tuple[str, str], tuple[str, int, Mapping[str, Any]]] = {}
        self._listed = self._known = 0
        self._doubts = 0
        self._is_listing = False
        self._repair = threading.Lock()  # Held while claims are made, or leases given back, in the background.

    def close(self) -> None:
        self._worker.close()

    def begin(self) -> None:
        """A new tenure, which holds nothing yet."""
        self.lose_all()
        self._listed = self._known = 0
        self._perhaps.clear()
        self.is_doubted = False
        if self._claims or self._connections:
            self._later(self._assert_again)

    # Revisions.

    def revisions(self) -> tuple[int, int]:
        """The one of the last listing, which a beat may name, and the highest one of any answer."""
        return self._listed, self._known

    def answered(self, tenure: str, revision: int | None) -> None:
        with self._lock:
            if tenure == self._membership._tenure:
                self._known = max(self._known, revision or 0)

    def compare(self, seen: int, named: int, known: int) -> None:
        """Compares the revision in a beat's answer with those from when the beat was sent."""
        if seen < known:
            # The store lost its latest writes.
            self._known = seen
            self._claims = dict.fromkeys(self._claims, "")
            self._connections = {place: ("", *held[1:]) for place, held in self._connections.items()}
            self._later(self._assert_again)
            self._doubt()
        elif seen == named == self._listed and not self._perhaps:
            return
        elif not self._leases and not self._acts and not self._perhaps:
            self._listed, self._known = seen, max(seen, self._known)
            return
        elif seen > self._known and not self._acts:
            self._doubt()
        self._list()

    def _doubt(self) -> None:
        self._doubts += 1
        self.is_doubted = bool(self._leases)

    def _list(self, after: float = 0.0) -> None:
        if not self._is_listing:
            self._is_listing = True
            self._later(self._compare_list, after)

    def _later(self, work: Callable[[str], None], after: float = 0.0) -> None:
        """Runs it in the background under the current tenure, again and again until it succeeds."""
        tenure = self._membership._tenure

        def run() -> None:
            with self._lock:
                if self._membership._ended or tenure != self._membership._tenure:
                    self._is_listing = False
                    return
            try:
                work(tenure)
            except TenureEnded as error:
                self._membership._end(tenure, error.reason or "unknown")
            except TenureError:
                self._worker.submit(run, self._membership.ttl / 12)

        self._worker.submit(run, after)

    def _compare_list(self, tenure: str) -> None:
        with self._lock:
            ours, doubts, self._is_listing = set(self._leases), self._doubts, False
            began = now()
            perhaps = [name for name, at in self._perhaps.items() if at <= began and name not in self._asking]
        try:
            found, revision = self._read_list(tenure)
        except TenureError:
            self._is_listing = True
            raise
        with self._lock:
            if tenure != self._membership._tenure or self._membership._ended:
                return
            for lease in ours & self._leases:
                if found.get(lease.name) != lease.token:
                    self._lose(lease)
            self._listed, self._known = revision, max(revision, self._known)
            self.is_doubted = self.is_doubted and doubts != self._doubts
            for name in perhaps:
                if name not in found:
                    self._perhaps.pop(name, None)
        for name in perhaps:
            if name in found:
                self._give_back(tenure, name, found[name])

    def _read_list(self, tenure: str) -> tuple[dict[str, int], int]:
        """The leases of the tenure, by name, with their tokens, and the revision of the list."""
        for _ in range(_READS):
            found: dict[str, int] = {}
            after, revisions = None, set()
            while True:
                page = self._http.read(
                    path("groups", self._membership.group, "leases", tenure=tenure, limit=1000, after=after)
                )
                found.update((item["lease"], item["token"]) for item in page["leases"])
                revisions.add(page.get("revision") or 0)
                after = page.get("next")
                if not after:
                    break
            if len(revisions) == 1:
                break
        return found, min(revisions)

    # Leases.

    @contextmanager
    def asking(self, name: str) -> Iterator[None]:
        """While a lease is acquired, it is not given back."""
        with self._repair, self._lock:
            self._asking[name] += 1
            self._perhaps.pop(name, None)
        try:
            yield
        finally:
            with self._lock:
                self._asking[name] -= 1
                if not self._asking[name]:
                    del self._asking[name]

    def granted(self, lease: Lease) -> Lease:
        """Adds a grant. The same grant is the same object, unless that is lost."""
        with self._lock:
            for other in self._leases:
                if (other.name, other.token) == (lease.name, lease.token):
                    return other
            self._leases.add(lease)
            if self._membership._lease_verdict(lease) == LOST:
                self.lose_all()
                raise ended(lease.tenure, self._membership._ended)
            return lease

    def may_have(self, name: str) -> None:
        """A call without an answer may leave this lease with us. It can take effect for one attempt more."""
        with self._lock:
            self._perhaps[name] = now() + ATTEMPT
            self._later(self._compare_list, ATTEMPT)

    def _give_back(self, tenure: str, name: str, token: int) -> None:
        with self._repair:
            with self._lock:
                if name not in self._perhaps or name in self._asking or any(held.name == name for held in self._leases):
                    self._perhaps.pop(name, None)
                    return
            target = path("groups", self._membership.group, "leases", name, "release")
            try:
                self._act(tenure, target, {"tenure": tenure, "token": token})
            except TenureError as error:
                if error.code != "not_holder":
                    raise
            with self._lock:
                self._perhaps.pop(name, None)

    def released(self, lease: Lease) -> bool:
        """Ends a lease locally. Returns whether it was ours until now."""
        with self._lock:
            lease._is_lost = True
            was_ours = lease in self._leases
            self._leases.discard(lease)
            return was_ours

    def lose_all(self) -> None:
        """The tenure has ended, or was not confirmed in time. At the store the leases may still be ours then."""
        for lease in list(self._leases):
            self._perhaps[lease.name] = now()
            self._lose(lease)

    def forget(self) -> None:
        """Ends all leases without a word: the program leaves."""
        for lease in self._leases:
            lease._is_lost = True
        self._leases.clear()

    def _lose(self, lease: Lease) -> None:
        lease._is_lost = True
        self._leases.discard(lease)
        tell = self._membership._on_lease_lost
        if tell:
            callback = tell
            self._membership._notifier.submit(lambda: callback(lease))

    # Claims and connections.

    def claimed(self, registry: str, key: str, tenure: str) -> None:
        with self._lock:
            self._claims[registry, key] = tenure
            self._check_tenure(tenure)

    def unclaimed(self, registry: str, key: str) -> None:
        # Not while it is claimed again in the background.
        with self._repair, self._lock:
            self._claims.pop((registry, key), None)

    def attached(self, session: str, connection: str, tenure: str, epoch: int, kept: Mapping[str, Any]) -> None:
        with self._lock:
            self._connections[session, connection] = (tenure, epoch, kept)
            self._check_tenure(tenure)

    def _check_tenure(self, tenure: str) -> None:
        """The membership may have joined again while a call was under way."""
        if tenure != self._membership._tenure:
            self._later(self._assert_again)

    def detached(self, session: str, connection: str) -> int | None:
        with self._repair, self._lock:
            held = self._connections.pop((session, connection), None)
            return held[1] if held else None

    def _assert_again(self, tenure: str) -> None:
        """Claims and attaches again what the store may have lost, or had under the tenure before."""
        with self._lock:
            registries = {registry for (registry, _), under in self._claims.items() if under != tenure}
        for registry in sorted(registries):
            while self._claim_again(tenure, registry):
                pass
        while self._attach_again(tenure):
            pass

    def _act(self, tenure: str, target: str, body: Any) -> Answer:
        with self.acting():
            answer = self._http.change("POST", target, body)
            self.answered(tenure, answer.get("revision"))
            return answer

    @contextmanager
    def acting(self) -> Iterator[None]:
        """While a call is under way that may change the revision."""
        with self._lock:
            self._acts += 1
        try:
            yield
        finally:
            with self._lock:
                self._acts -= 1

    def _claim_again(self, tenure: str, registry: str) -> bool:
        """Claims some keys again. Returns whether there may be more."""
        with self._repair:
            with self._lock:
                behind = (key for (name, key), under in self._claims.items() if name == registry and under != tenure)
                keys = sorted(behind)[:_PART]
            if not keys:
                return False
            target = path("groups", self._membership.group, "registries", registry, "claims")
            answer = self._act(tenure, target, {"tenure": tenure, "keys": keys, "if_absent": True})
            with self._lock:
                for result in answer["results"]:
                    if result["outcome"] == "held":
                        self._claims.pop((registry, result["key"]), None)
                    else:
                        self._claims[registry, result["key"]] = tenure
            return True

    def _attach_again(self, tenure: str) -> bool:
        with self._repair:
            with self._lock:
                behind = [(place, kept) for place, (under, _, kept) in self._connections.items() if under != tenure][
                    :_PART
                ]
            if not behind:
                return False
            sessions = [{**kept, "session": session} for (session, _), kept in behind]
            target = path("groups", self._membership.group, "sessions-attach")
            answer = self._act(tenure, target, {"tenure": tenure, "sessions": sessions})
            with self._lock:
                for (place, kept), result in zip(behind, answer["results"]):
                    if result.get("now"):
                        self._connections[place] = (tenure, result["now"]["epoch"], kept)
                    else:
                        # The session is gone or full, or another has its alias.
                        self._connections.pop(place, None)
            return True
