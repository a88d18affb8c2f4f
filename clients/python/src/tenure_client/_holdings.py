"""What a membership holds, compared with the store by the revision of each beat."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable

from ._clock import now
from ._http import ATTEMPT, Answer, following, number, path, text
from ._worker import Worker
from .errors import UNCHANGED, TenureEnded, TenureError, ended
from .lease import LOST, Lease
from .types import LostClaim

if TYPE_CHECKING:
    from .membership import Membership

_PART = 500
_READS = 4
_REVIEW = 60.0
"""Seconds between two looks for claims that other members took over."""
_REVIEWED = 1000
"""The most keys that are looked up one by one in a review."""
Place = tuple[str, ...]
"""The name of a lease; a registry and its key; or a session and its connection."""


@dataclass(frozen=True)
class _Claim:
    tenure: str
    call: object
    """The latest call that asked for it."""


@dataclass(frozen=True)
class _Connection:
    tenure: str
    call: object
    epoch: int
    kept: Mapping[str, Any]


class Holdings:
    """Leases, claims and connections. Its fields are guarded by the lock of the membership."""

    def __init__(self, membership: Membership) -> None:
        self._membership, self._lock, self._http = membership, membership._lock, membership._http
        self._worker = Worker(f"tenure-holdings-{membership.member}")
        self._acts = 0
        self.is_doubted = False
        """Leases are uncertain until they have been listed."""
        self._leases: set[Lease] = set()
        self._asking: Counter[Place] = Counter()  # What calls of the program that are under way ask for.
        # Leases that may be ours at the store, without a Lease here, and from when on a listing is certain.
        self._perhaps: dict[str, float] = {}
        self._claims: dict[Place, _Claim] = {}
        self._connections: dict[Place, _Connection] = {}
        self._lost_claims: dict[Place, LostClaim] = {}
        self._reviewed = now()
        self._listed = self._known = 0
        self._doubts = 0
        self._is_listing = False
        self._repair = threading.RLock()  # Held while the background claims or gives back.

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

    def answered(self, tenure: str, revision: int) -> None:
        with self._lock:
            if tenure == self._membership._state.tenure:
                self._known = max(self._known, revision)

    def compare(self, seen: int, named: int, known: int) -> None:
        """Compares the revision in a beat's answer with those from when the beat was sent."""
        if seen < known:
            # The store lost its latest writes.
            self._known = seen
            self._claims = {place: replace(held, tenure="") for place, held in self._claims.items()}
            self._connections = {place: replace(held, tenure="") for place, held in self._connections.items()}
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
        tenure = self._membership._state.tenure

        def run() -> None:
            with self._lock:
                if self._membership._is_over(tenure):
                    self._is_listing = False
                    return
            try:
                work(tenure)
            except TenureEnded as error:
                self._membership._end(tenure, error.reason or "unknown")
            except _Later:
                self._worker.submit(run, ATTEMPT)
            except TenureError:
                self._worker.submit(run, self._membership.ttl / 12)

        self._worker.submit(run, after)

    def _compare_list(self, tenure: str) -> None:
        with self._lock:
            ours, doubts, self._is_listing = set(self._leases), self._doubts, False
            began = now()
            perhaps = [name for name, at in self._perhaps.items() if at <= began and (name,) not in self._asking]
        try:
            found, revision = self._read_list(tenure)
        except TenureError:
            self._is_listing = True
            raise
        with self._lock:
            if self._membership._is_over(tenure):
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
            after: str | None = None
            revisions = set()
            while True:
                page = self._http.read(
                    path("groups", self._membership.group, "leases", tenure=tenure, limit=1000, after=after)
                )
                found.update(page.read(_tokens))
                revisions.add(page.revision())
                before, after = after, following(page)
                if not after or after == before:
                    break
            if len(revisions) == 1:
                break
        return found, min(revisions)

    # Leases.

    @contextmanager
    def asking(self, *place: str) -> Iterator[None]:
        """While a call of the program asks for it, it is not given back."""
        with self._repair, self._lock:
            self._asking[place] += 1
        try:
            yield
        finally:
            with self._lock:
                self._asking[place] -= 1
                if not self._asking[place]:
                    del self._asking[place]

    def granted(self, lease: Lease) -> Lease:
        """Adds a grant. The same grant is the same object, unless that is lost."""
        with self._lock:
            self._perhaps.pop(lease.name, None)
            for other in list(self._leases):
                if other._is_lost:
                    self._lose(other)
                elif (other.name, other.token) == (lease.name, lease.token):
                    lease = other
            lease._users += 1
            self._leases.add(lease)
            if self._membership._lease_verdict(lease) == LOST:
                self.lose_all()
                raise ended(lease.tenure, self._membership._state.ended)
            return lease

    def give_up(self, lease: Lease | None) -> None:
        """The call that was granted the lease was abandoned. Other calls may have been answered with the same grant."""
        with self._lock:
            if lease is None or lease._is_lost:
                return
            lease._users -= 1
            if lease._users == 0:
                self.released(lease)
                self._perhaps[lease.name] = now()
                self._list()

    def may_have(self, name: str) -> None:
        """A call without an answer may leave this lease with us. It can take effect for one attempt more."""
        with self._lock:
            self._perhaps[name] = now() + ATTEMPT
            self._later(self._compare_list, ATTEMPT)

    def undo(self, place: Place, is_needed: Callable[[], bool], act: Callable[[str], None]) -> None:
        """Gives back in the background what an abandoned call obtained, unless the program asked for it again."""

        def work(tenure: str) -> None:
            with self._repair:
                with self._lock:
                    if place in self._asking:
                        raise _Later("asked for again", outcome=UNCHANGED)
                    if not is_needed():
                        return
                act(tenure)

        with self._lock:
            self._later(work)

    def _give_back(self, tenure: str, name: str, token: int) -> None:
        with self._repair:
            with self._lock:
                if (name,) in self._asking:
                    return  # The next beat leads here again.
                if name not in self._perhaps or any(held.name == name for held in self._leases):
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

    def lose_over(self) -> None:
        """Ends the leases whose verdict was lost."""
        for lease in [lease for lease in self._leases if lease._is_lost]:
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

    def claimed(self, place: Place, tenure: str, call: object) -> None:
        with self._lock:
            self._claims[place] = _Claim(tenure, call)
            self._lost_claims.pop(place, None)
            self._check_tenure(tenure)

    def unclaimed(self, place: Place) -> None:
        # Not while it is claimed again in the background.
        with self._repair, self._lock:
            self._claims.pop(place, None)

    def has_claim(self, place: Place) -> bool:
        return place in self._claims

    def is_claim_of(self, place: Place, call: object) -> bool:
        held = self._claims.get(place)
        return held is None or held.call is call

    def attached(self, place: Place, tenure: str, call: object, epoch: int, kept: Mapping[str, Any]) -> None:
        with self._lock:
            self._connections[place] = _Connection(tenure, call, epoch, kept)
            self._check_tenure(tenure)

    def has_connection(self, place: Place) -> bool:
        return place in self._connections

    def is_connection_of(self, place: Place, call: object) -> bool:
        held = self._connections.get(place)
        return held is None or held.call is call

    def detached(self, place: Place) -> int | None:
        with self._repair, self._lock:
            held = self._connections.pop(place, None)
            return held.epoch if held else None

    def take_lost_claims(self) -> list[LostClaim]:
        with self._lock:
            lost, self._lost_claims = self._lost_claims, {}
            return list(lost.values())

    def _lose_claim(self, place: Place, to: str) -> None:
        del self._claims[place]
        lost = self._lost_claims[place] = LostClaim(place[0], place[1], to)
        tell = self._membership._on_claim_lost
        if tell:
            callback = tell
            self._membership._notifier.submit(lambda: callback(lost))

    def review(self) -> None:
        """Checks from time to time for claims that other members took over. The store does not report them."""
        if self._claims and now() - self._reviewed > _REVIEW:
            self._reviewed = now()
            self._later(self._review)

    def _review(self, tenure: str) -> None:
        group = self._membership.group
        with self._lock:
            registries = {place[0] for place in self._claims}
        for registry in registries:
            place = ("groups", group, "registries", registry, "claims")
            try:
                owned = set(self._http.pages(_key, "claims", *place, owner=self._membership.member))
            except TenureError:
                return  # It may not list them, or cannot. The next review comes.
            with self._lock:
                missing = [key for name, key in self._claims if name == registry and key not in owned]
            for key in missing[:_REVIEWED]:
                with self._repair:
                    found = self._http.find(path(*place, key))
                    owner = found.text("tenure") if found else tenure
                    with self._lock:
                        held = self._claims.get((registry, key))
                        if held and owner != tenure and held.tenure == tenure == self._membership._state.tenure:
                            self._lose_claim((registry, key), owner)

    def _check_tenure(self, tenure: str) -> None:
        """The membership may have joined again while a call was under way."""
        if tenure != self._membership._state.tenure:
            self._later(self._assert_again)

    def _assert_again(self, tenure: str) -> None:
        """Claims and attaches again what the store may have lost, or had under the tenure before."""
        with self._lock:
            registries = {place[0] for place, held in self._claims.items() if held.tenure != tenure}
        for registry in sorted(registries):
            while self._claim_again(tenure, registry):
                pass
        while self._attach_again(tenure):
            pass

    def _act(self, tenure: str, target: str, body: Any) -> Answer:
        with self.acting():
            answer = self._http.change("POST", target, body)
            self.answered(tenure, answer.revision())
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
                behind = (
                    place[1] for place, held in self._claims.items() if place[0] == registry and held.tenure != tenure
                )
                keys = sorted(behind)[:_PART]
            if not keys:
                return False
            target = path("groups", self._membership.group, "registries", registry, "claims")
            answer = self._act(tenure, target, {"tenure": tenure, "keys": keys, "if_absent": True})
            results = answer.read(_owners)
            with self._lock:
                for key in keys:
                    place = (registry, key)
                    if results[key] is None:
                        self._claims[place] = replace(self._claims[place], tenure=tenure)
                    else:
                        self._lose_claim(place, results[key] or "")
            return True

    def _attach_again(self, tenure: str) -> bool:
        with self._repair:
            with self._lock:
                behind = [(place, held) for place, held in self._connections.items() if held.tenure != tenure][:_PART]
            if not behind:
                return False
            sessions = [{**held.kept, "session": place[0]} for place, held in behind]
            target = path("groups", self._membership.group, "sessions-attach")
            answer = self._act(tenure, target, {"tenure": tenure, "sessions": sessions})
            epochs = answer.read(lambda body: [_epoch(result) for result in body["results"]])
            with self._lock:
                for (place, held), epoch in zip(behind, epochs):
                    if epoch is not None:
                        self._connections[place] = replace(held, tenure=tenure, epoch=epoch)
                    else:
                        # The session is gone or full, or another has its alias.
                        self._connections.pop(place, None)
            return True


class _Later(TenureError):
    """It cannot be given back yet."""


def _tokens(body: dict[str, Any]) -> dict[str, int]:
    return {text(item["lease"]): number(item["token"]) for item in body["leases"]}


def _key(claim: Any) -> str:
    return text(claim["key"])


def _owners(body: dict[str, Any]) -> dict[str, str | None]:
    """The other owner of each key; None if it is ours."""
    held = (item if item["outcome"] == "held" else None for item in body["results"])
    return {text(item["key"]): text(other["tenure"]) if other else None for item, other in zip(body["results"], held)}


def _epoch(result: dict[str, Any]) -> int | None:
    return number(result["now"]["epoch"]) if result.get("now") else None
