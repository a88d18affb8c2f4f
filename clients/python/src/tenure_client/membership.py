"""This process as a member of a group: beats, verdict, and what it holds."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable, TypeVar

from . import _holdings
from ._cancel import Cancel
from ._clock import now
from ._connections import Connections
from ._http import Answer, Http, number, passes, path, text
from ._process import here
from ._threads import LOG, Call, Threads
from ._worker import Worker
from ._wrapper import Wrapper
from .errors import FORKED, UNCHANGED, UNKNOWN, TenureEnded, TenureError, Unreachable, ended
from .lease import HELD, LOST, UNCERTAIN, Lease
from .types import Attached, LostClaim, Session

_T = TypeVar("_T")
_MARGIN = 1 / 12
_PART = 200
REJOIN_AFTER = ("lapsed", "unknown")
_STARTED = time.time_ns()


@dataclass(frozen=True)
class _State:
    """Replaced as a whole, so that a verdict needs no lock: a signal handler or a forked child may ask for one."""

    tenure: str
    confirmed: float
    ended: str | None = None


@dataclass(frozen=True)
class Callbacks:
    on_ended: Callable[[Membership, str, str], None] | None = None
    on_rejoined: Callable[[Membership], None] | None = None
    on_lease_lost: Callable[[Lease], None] | None = None
    on_claim_lost: Callable[[LostClaim], None] | None = None


@dataclass(frozen=True)
class Options:
    group: str
    member: str
    ttl: float
    labels: Mapping[str, str]
    rejoin: bool
    callbacks: Callbacks
    is_inherited: bool = False


class Membership:
    """A member from its join until it leaves, or is superseded or expelled.

    A thread sends the beats. After the reasons `lapsed` and `unknown` it joins again under a new tenure and claims
    again what was claimed; leases are lost. As a context manager it leaves at the end; a failure to leave is logged.

    It belongs to the process that joined: in a forked child it is `lost`, and its calls are refused or do nothing.
    """

    def __init__(
        self,
        http: Http,
        threads: Threads,
        notifier: Worker,
        options: Options,
        patience: float,
        cancel: Cancel,
    ) -> None:
        self._http, self._threads, self._notifier, self._home = http, threads, notifier, here()
        self.group, self.member, self.ttl = options.group, options.member, options.ttl
        self._labels, self._rejoin, self._callbacks = dict(options.labels), options.rejoin, options.callbacks
        self._is_inherited = options.is_inherited
        self._lock = threading.RLock()
        self._wakeup, self._is_leaving = threading.Event(), False
        self._join_is_unanswered = False
        self._holdings = _holdings.Holdings(self)
        self._connection = Connections(http.address)  # Of the beats alone.
        self._state, self._next_beat = _State("", 0.0), 0.0
        self._first_join(patience, cancel)
        self._thread = threading.Thread(target=self._run, name=f"tenure-beats-{self.member}", daemon=True)
        self._thread.start()

    # What the program asks.

    @property
    def tenure(self) -> str:
        """The current tenure, or the last one."""
        return self._state.tenure

    @property
    def ended(self) -> str | None:
        """Why the current tenure ended; None while it has not."""
        return FORKED if self._home != here() else self._state.ended

    def verdict(self) -> str:
        """`held`: act as a member. `uncertain`: pause. `lost`: stop. No network access."""
        return self._judge(self._state)

    def _judge(self, state: _State) -> str:
        age = now() - state.confirmed
        if state.ended or age >= self.ttl or self._home != here():
            return LOST
        return HELD if age < self.ttl * (1 - _MARGIN) else UNCERTAIN

    def valid_for(self) -> float:
        """Seconds for which the verdict stays `held` without a further beat; 0 if it is not held."""
        state = self._state
        held = state.confirmed + self.ttl * (1 - _MARGIN) - now()
        return held if held > 0 and self._judge(state) == HELD else 0.0

    def lost_claims(self) -> list[LostClaim]:
        """The keys that were found to belong to other members since the last call; see `on_claim_lost`."""
        return self._threads.run(self._calling(self._holdings.take_lost_claims))

    def __enter__(self) -> Membership:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.run(Call(self._finish))

    # What the program does. Each call runs in a thread of its own; see `Threads`.

    def leave(self) -> None:
        """Ends the tenure and releases everything it holds. All verdicts are `lost` before the call is sent."""
        self._threads.run(Call(self._leave))

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """Replaces all labels, without a new tenure."""
        self._threads.run(self._calling(self._set_labels, labels))

    def claim(self, registry: str, key: str, if_absent: bool = False) -> str:
        """Claims a key: `new`, `kept` or `moved`. With `if_absent` a living owner keeps it (`ClaimHeld`)."""
        return self._threads.run(self._claiming(registry, key, if_absent))

    def release_claim(self, registry: str, key: str) -> None:
        """Releases a key. It is not claimed again after a rejoin, even if this call fails."""
        self._threads.run(self._calling(self._release_claim, registry, key))

    def acquire(self, lease: str, wait: float = 0.0, holders: int = 1) -> Lease:
        """Acquires a lease, or waits up to `wait` seconds for it, first come, first served (`LeaseHeld` otherwise).

        `holders`: how many members may have it at a time. If the outcome stays unknown, a grant is given back in the
        background. A wait goes on over broken connections; after each minute it continues at the end of the queue.
        """
        return self._threads.run(self._acquiring(lease, wait, holders))

    def acquire_many(self, leases: Iterable[str]) -> list[Lease]:
        """Acquires those of these leases that are free, 200 in a call, and returns them."""
        return self._threads.run(self._acquiring_many(list(leases)))

    def claim_many(self, registry: str, keys: Iterable[str]) -> dict[str, str]:
        """Claims those of these keys that have no living owner, 200 in a call: `new`, `kept` or `held` for each.

        After an error the calls before it have taken effect.
        """
        return self._threads.run(self._claiming_many(registry, list(keys)))

    def attach(
        self,
        session: str,
        connection: str,
        data: Mapping[str, str] | None = None,
        grace: float | None = None,
        alias: str | None = None,
        resume_only: bool = False,
    ) -> Attached:
        """Attaches a connection to a session, which is created or resumed. It is attached again after a rejoin."""
        return self._threads.run(self._attaching(session, connection, data, grace, alias, resume_only))

    def detach(self, session: str, connection: str) -> None:
        """Detaches a connection. If it was attached again elsewhere meanwhile, it stays there."""
        self._threads.run(self._calling(self._detach, session, connection))

    def patch_session(self, session: str, data: Mapping[str, str | None]) -> Session:
        """Changes fields of a session's data; None removes one."""
        return self._threads.run(self._calling(self._patch_session, session, data))

    # The same in the thread of the call.

    def _leave(self) -> None:
        if self._home != here():
            return  # The tenure is another process's.
        with self._lock:
            ended = self._state.ended
            was_over = ended is not None and not self._may_rejoin(ended)
            self._is_leaving = True
            self._state = replace(self._state, ended=ended or "left")
            self._holdings.forget()
        self._holdings.close()
        self._wakeup.set()
        self._thread.join()
        self._connection.clear()
        if not was_over and not self._is_inherited:
            self._http.change("DELETE", path("groups", self.group, "tenures", self.tenure))

    def _finish(self) -> None:
        """At the end of a `with` block, whose own outcome counts."""
        try:
            self._leave()
        except TenureError as error:
            LOG.warning("%s could not leave %s, and lapses there: %s", self.member, self.group, error)

    def _calling(self, function: Callable[..., _T], *args: Any, **options: Any) -> Call[_T]:
        """A call that a forked child may not make. Its locks may be held by threads that it does not have."""

        def run() -> _T:
            if self._home != here():
                raise ended(self.tenure, FORKED)
            return function(*args)

        return Call(run, **options)

    def _set_labels(self, labels: Mapping[str, str]) -> None:
        with self._lock:
            self._labels = dict(labels)
        self._act(
            "PUT", lambda tenure: path("groups", self.group, "tenures", tenure, "labels"), {"labels": dict(labels)}
        )

    def _claiming(self, registry: str, key: str, if_absent: bool) -> Call[str]:
        place, call = (registry, key), object()
        undo = None if self._holdings.has_claim(place) else partial(self._undo_claim, place, call)
        return self._calling(self._claim, place, call, if_absent, undo=undo)

    def _claim(self, place: tuple[str, str], call: object, if_absent: bool) -> str:
        with self._holdings.asking("claim", *place):
            body = {"if_absent": True} if if_absent else {}
            answer, tenure = self._act_under("PUT", self._claim_path(place), body, in_body=True)
            outcome = answer.text("outcome")
            self._holdings.claimed(place, tenure, call)
            return outcome

    def _claiming_many(self, registry: str, keys: list[str]) -> Call[dict[str, str]]:
        call = object()
        fresh = [place for place in ((registry, key) for key in keys) if not self._holdings.has_claim(place)]

        def undo(_: dict[str, str] | None) -> None:
            for place in fresh:
                self._undo_claim(place, call, None)

        return self._calling(self._claim_many, registry, keys, call, undo=undo)

    def _claim_many(self, registry: str, keys: list[str], call: object) -> dict[str, str]:
        outcomes: dict[str, str] = {}
        target = path("groups", self.group, "registries", registry, "claims")
        for part in _parts(keys):
            with ExitStack() as asking:
                for key in part:
                    asking.enter_context(self._holdings.asking("claim", registry, key))
                body = {"keys": part, "if_absent": True}
                answer, tenure = self._act_under("POST", lambda _: target, body, in_body=True)
                found = answer.read(lambda body: {text(item["key"]): text(item["outcome"]) for item in body["results"]})
                for key, outcome in found.items():
                    if outcome != "held":
                        self._holdings.claimed((registry, key), tenure, call)
                outcomes.update(found)
        return outcomes

    def _undo_claim(self, place: tuple[str, str], call: object, _: str | None) -> None:
        def act(tenure: str) -> None:
            self._holdings.unclaimed(place)
            self._act_with("DELETE", f"{self._claim_path(place)(tenure)}?tenure={tenure}", tenure)

        self._holdings.undo(("claim", *place), lambda: self._holdings.is_claim_of(place, call), act)

    def _release_claim(self, registry: str, key: str) -> None:
        place = (registry, key)
        self._holdings.unclaimed(place)
        self._act("DELETE", lambda tenure: f"{self._claim_path(place)(tenure)}?tenure={tenure}")

    def _acquiring(self, lease: str, wait: float, holders: int) -> Call[Lease]:
        cancel = Cancel()
        undo = self._holdings.give_up
        return self._calling(self._acquire, lease, wait, holders, cancel, undo=undo, cancel=cancel)

    def _acquire(self, lease: str, wait: float, holders: int, cancel: Cancel) -> Lease:
        with self._holdings.asking(lease):
            body = {"seen": self._holdings.revisions()[1], **({} if holders == 1 else {"holders": holders})}
            target, began = path("groups", self.group, "leases", lease, "acquire"), now()
            try:
                answer, tenure = self._act_under("POST", lambda _: target, body, in_body=True, wait=wait, cancel=cancel)
                numbers = answer.read(_numbers)
                waited = answer.read(lambda found: number(found.get("waited_ms") or 0)) / 1000
            except TenureError as error:
                if error.outcome == UNKNOWN:
                    self._holdings.may_have(lease)
                raise
            # The daemon knows of the last part of the wait.
            waited += max(0.0, answer.sent - began) if wait else 0.0
            return self._holdings.granted(Lease(self, lease, tenure, *numbers, waited))

    def _acquiring_many(self, leases: list[str]) -> Call[list[Lease]]:
        return self._calling(self._acquire_many, leases, undo=lambda granted: self._give_up_all(granted or []))

    def _acquire_many(self, leases: list[str]) -> list[Lease]:
        granted: list[Lease] = []
        target = path("groups", self.group, "leases-acquire")
        for part in _parts(leases):
            with ExitStack() as asking:
                for lease in part:
                    asking.enter_context(self._holdings.asking(lease))
                try:
                    body = {"leases": part, "seen": self._holdings.revisions()[1]}
                    answer, tenure = self._act_under("POST", lambda _: target, body, in_body=True)
                    found = answer.read(_grants)
                except TenureError as error:
                    if error.outcome == UNKNOWN:
                        for lease in part:
                            self._holdings.may_have(lease)
                    self._give_up_all(granted)
                    raise
                granted += [self._holdings.granted(Lease(self, name, tenure, *numbers, 0.0)) for name, numbers in found]
        return granted

    def _give_up_all(self, granted: list[Lease]) -> None:
        for lease in granted:
            self._holdings.give_up(lease)

    def _pages(self, read: Callable[[Any], _T], field: str, *parts: str) -> list[_T]:
        return self._threads.run(Call(lambda: list(self._http.pages(read, field, *parts))))

    def _attaching(
        self,
        session: str,
        connection: str,
        data: Mapping[str, str] | None = None,
        grace: float | None = None,
        alias: str | None = None,
        resume_only: bool = False,
    ) -> Call[Attached]:
        kept = {"connection": connection, "alias": alias, "grace_ms": None if grace is None else int(grace * 1000)}
        kept = {name: value for name, value in kept.items() if value is not None}
        body = {**kept, **({"data": dict(data)} if data else {}), **({"resume_only": True} if resume_only else {})}
        place, call = (session, connection), object()
        undo = None if self._holdings.has_connection(place) else partial(self._undo_attach, place, call)
        return self._calling(self._attach, place, call, body, kept, undo=undo)

    def _attach(self, place: tuple[str, str], call: object, body: Any, kept: Mapping[str, Any]) -> Attached:
        target = path("groups", self.group, "sessions", place[0])
        with self._holdings.asking("connection", *place):
            answer, tenure = self._act_under("PUT", lambda _: target, body, in_body=True)
            attached = answer.read(Attached.read)
            self._holdings.attached(place, tenure, call, attached.epoch, kept)
            return attached

    def _undo_attach(self, place: tuple[str, str], call: object, _: Attached | None) -> None:
        def act(tenure: str) -> None:
            self._act_with("DELETE", self._detach_path(place)(tenure), tenure)

        self._holdings.undo(("connection", *place), lambda: self._holdings.is_connection_of(place, call), act)

    def _detach(self, session: str, connection: str) -> None:
        self._act("DELETE", self._detach_path((session, connection)))

    def _detach_path(self, place: tuple[str, str]) -> Callable[[str], str]:
        epoch = self._holdings.detached(place)
        target = path("groups", self.group, "sessions", place[0], "connections", place[1])
        return lambda tenure: f"{target}?tenure={tenure}" + ("" if epoch is None else f"&epoch={epoch}")

    def _patch_session(self, session: str, data: Mapping[str, str | None]) -> Session:
        target = path("groups", self.group, "sessions", session)
        return self._act("PATCH", lambda _: target, {"data": dict(data)}, in_body=True).read(Session.read)

    # Acts under the tenure.

    def _claim_path(self, place: tuple[str, str]) -> Callable[[str], str]:
        target = path("groups", self.group, "registries", place[0], "claims", place[1])
        return lambda _: target

    def _act(self, method: str, target: Callable[[str], str], body: Any = None, in_body: bool = False) -> Answer:
        return self._act_under(method, target, body, in_body=in_body)[0]

    def _act_under(
        self,
        method: str,
        target: Callable[[str], str],
        body: Any = None,
        in_body: bool = False,
        wait: float = 0.0,
        cancel: Cancel | None = None,
    ) -> tuple[Answer, str]:
        """A change under the current tenure, and that tenure."""
        state = self._state
        if self._judge(state) == LOST:
            raise ended(state.tenure, state.ended)
        if in_body:
            body = {**body, "tenure": state.tenure}
        return self._act_with(method, target(state.tenure), state.tenure, body, wait, cancel), state.tenure

    def _act_with(
        self, method: str, target: str, tenure: str, body: Any = None, wait: float = 0.0, cancel: Cancel | None = None
    ) -> Answer:
        """Its answer explains the revision of the next beat."""
        try:
            with self._holdings.acting():
                answer = self._http.change(method, target, body, wait=wait, cancel=cancel)
                self._holdings.answered(tenure, answer.revision())
                return answer
        except TenureEnded as error:
            self._end(tenure, error.reason or "unknown")
            raise

    def _is_over(self, tenure: str) -> bool:
        state = self._state
        return state.ended is not None or state.tenure != tenure

    @property
    def _on_lease_lost(self) -> Callable[[Lease], None] | None:
        return self._callbacks.on_lease_lost

    @property
    def _on_claim_lost(self) -> Callable[[LostClaim], None] | None:
        return self._callbacks.on_claim_lost

    def _lease_verdict(self, lease: Lease) -> str:
        if lease._is_lost:
            return LOST
        state, is_doubted = self._state, self._holdings.is_doubted
        verdict = self._judge(state)
        if verdict == LOST or lease.tenure != state.tenure:
            lease._is_lost = True  # For good. The thread of the beats tells the program.
            return LOST
        return UNCERTAIN if verdict == HELD and is_doubted else verdict

    def _release(self, lease: Lease, to: str | None) -> None:
        if self._home != here() or not self._holdings.released(lease):
            return
        target = path("groups", self.group, "leases", lease.name, "release")
        seen = self._holdings.revisions()[1]
        body = {"tenure": lease.tenure, "token": lease.token, "seen": seen, **({"to": to} if to else {})}
        try:
            with self._holdings.acting():
                answer = self._http.change("POST", target, body)
                self._holdings.answered(lease.tenure, answer.revision())
        except TenureEnded:
            pass  # It ended with the tenure.
        except TenureError as error:
            if error.code == "not_holder" and not to:
                return  # An earlier attempt released it, or it was taken away.
            # The Lease is lost here, so the program cannot release it again.
            self._holdings.may_have(lease.name)
            raise

    # The beats.

    def _run(self) -> None:
        pause = self.ttl / 3 * random.uniform(0.5, 1)
        while not self._is_leaving:
            self._wakeup.wait(self._until_news(pause))
            self._wakeup.clear()
            with self._lock:
                is_over, reason = self._state.ended is not None, self._state.ended
                self._lose_by_time()
            if self._is_leaving or (is_over and not self._may_rejoin(reason)):
                return
            try:
                if is_over:
                    pause = self._join_again()
                elif now() >= self._next_beat:
                    pause = self._beat()
                else:
                    pause = self._next_beat - now()
            except Exception:
                LOG.exception("the beats of %s go on after an error", self.member)
                pause = self.ttl * _MARGIN
            self._next_beat = now() + pause

    def _lose_by_time(self) -> None:
        if self.verdict() == LOST and not self._state.ended:
            self._holdings.lose_all()
        else:
            self._holdings.lose_over()

    def _until_news(self, pause: float) -> float:
        """Until the next beat, or until the leases are lost by time."""
        lost_in = self._state.confirmed + self.ttl - now()
        return min(pause, lost_in) if lost_in > 0 else pause

    def _beat(self) -> float:
        """Returns the pause after it."""
        with self._lock:
            tenure, (listed, known) = self._state.tenure, self._holdings.revisions()
        target = path("groups", self.group, "tenures", tenure, "beat")
        timeout = min(0.5, self.ttl / 6)
        try:
            # A revision says that a release by an operator was noticed here, not that the wrapper noticed it.
            named = {"seen": known, **({} if self._is_inherited else {"revision": listed})} if known else {}
            answer = self._http.beat(target, named, timeout, self._connection)
            answer.number("expires_in_ms")
            revision = answer.revision()
        except TenureEnded as error:
            self._end(tenure, error.reason or "unknown")
            return 0.0
        except TenureError as error:
            return max(self.ttl * _MARGIN, min(error.retry_after or 0.0, self.ttl / 3)) * random.uniform(0.9, 1)
        with self._lock:
            if self._is_over(tenure):
                return 0.0
            # The membership recovers; leases stay lost.
            self._lose_by_time()
            self._state = replace(self._state, confirmed=max(self._state.confirmed, answer.sent))
            self._holdings.compare(revision, listed, known)
            self._holdings.review()
        return max(0.0, answer.sent + self.ttl / 3 * random.uniform(0.9, 1) - now())

    def _may_rejoin(self, reason: str | None) -> bool:
        return self._rejoin and reason in REJOIN_AFTER

    def _end(self, tenure: str, reason: str) -> None:
        """The tenure has ended at the daemon."""
        with self._lock:
            if self._is_over(tenure):
                return
            self._state = replace(self._state, ended=reason)
            self._holdings.lose_all()
            if self._callbacks.on_ended:
                tell = self._callbacks.on_ended
                self._notifier.submit(lambda: tell(self, tenure, reason))
        self._wakeup.set()

    # Joining.

    def _first_join(self, patience: float, cancel: Cancel) -> None:
        end, pause = now() + patience, 0.1
        while True:
            try:
                return self._inherit() if self._is_inherited else self._call_join()
            except TenureError as error:
                left = end - now()
                if left <= 0 or cancel.is_set or not passes(error):
                    raise
                cancel.wait(min(left, max(pause, error.retry_after or 0.0)))
                pause = min(1.0, pause * 2) * random.uniform(0.8, 1)

    def _call_join(self) -> None:
        # A late join would supersede the one that was repeated.
        self._http.learn()
        body = {"member": self.member, "ttl_ms": int(self.ttl * 1000), "labels": self._labels}
        answer = self._http.change("POST", path("groups", self.group, "members"), body)
        self._begin(answer.read(lambda found: _checked(found["tenure"])), answer.sent)

    def _inherit(self) -> None:
        """Takes over the tenure that the wrapper has now."""
        try:
            wrapper = Wrapper.find()
        except ValueError as error:
            raise Unreachable(str(error), UNCHANGED) from error
        if wrapper is None or wrapper.tenure == self.tenure:
            raise Unreachable(f"the wrapper has not joined again after {self.tenure}", UNCHANGED)
        found = self._http.find(path("groups", self.group, "members", self.member))
        if found is None or found.text("tenure") != wrapper.tenure or not found.read(lambda member: member["alive"]):
            raise ended(wrapper.tenure, "unknown")
        ttl, left = found.number("ttl_ms") / 1000, found.number("expires_in_ms") / 1000
        self.ttl = ttl
        self._begin(wrapper.tenure, found.sent - max(0.0, ttl - left))
        self._next_beat = now()

    def _join_again(self) -> float:
        """Returns the pause after it."""
        try:
            if self._is_inherited:
                self._inherit()
            elif not self._join_is_unanswered and self._is_taken():
                # Another process of this name has begun since; joining would end it.
                with self._lock:
                    self._state = replace(self._state, ended="superseded")
                return 0.0
            else:
                self._call_join()
        except TenureError as error:
            self._join_is_unanswered |= error.outcome == UNKNOWN
            return max(self.ttl * _MARGIN, error.retry_after or 0.0) * random.uniform(0.9, 1.2)
        if self._callbacks.on_rejoined and not self._is_leaving:
            tell = self._callbacks.on_rejoined
            self._notifier.submit(lambda: tell(self))
        return 0.0 if self._is_inherited else self.ttl / 3 * random.uniform(0.9, 1)

    def _is_taken(self) -> bool:
        found = self._http.find(path("groups", self.group, "members", self.member))
        mine = _term(self.tenure)
        return found is not None and found.read(lambda member: bool(member["alive"]) and _term(member["tenure"]) > mine)

    def _begin(self, tenure: str, confirmed: float) -> None:
        with self._lock:
            self._holdings.lose_all()
            self._state = _State(tenure, confirmed, self._state.ended if self._is_leaving else None)
            self._join_is_unanswered = False
            self._holdings.begin()
        self._next_beat = now() + self.ttl / 3 * random.uniform(0.5, 1)


def _parts(names: list[str]) -> Iterator[list[str]]:
    """Without repetitions, as many as the store takes in one step."""
    once = list(dict.fromkeys(names))
    return (once[at : at + _PART] for at in range(0, len(once), _PART))


def _grants(body: dict[str, Any]) -> list[tuple[str, tuple[int, int, int]]]:
    """Each with its token, place and generation."""
    granted = [item for item in body["results"] if item["outcome"] in ("granted", "kept")]
    return [(text(item["lease"]), _numbers(item)) for item in granted]


def _numbers(grant: dict[str, Any]) -> tuple[int, int, int]:
    token = number(grant["token"])
    return token, number(grant.get("place") or 0), number(grant.get("generation") or token)


def _checked(tenure: object) -> str:
    _term(tenure)
    return text(tenure)


def _term(tenure: object) -> int:
    return int(text(tenure).rpartition("@")[2])


def generated_name() -> str:
    """Differs for each call, here and on other hosts. The host is for people."""
    host = "".join(c if c.isascii() and (c.isalnum() or c in "._:-") else "-" for c in socket.gethostname())
    return f"{host[:80] or 'host'}-{_STARTED}-{os.urandom(4).hex()}"
