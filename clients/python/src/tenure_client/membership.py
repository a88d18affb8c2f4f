"""This process as a member of a group: beats, verdict, and what it holds."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from typing import Any, Callable

from . import _holdings
from ._clock import now
from ._http import Answer, Cancel, Http, path
from ._worker import LOG, Worker
from .errors import UNCHANGED, UNKNOWN, TenureEnded, TenureError, Unreachable, ended
from .lease import HELD, LOST, UNCERTAIN, Lease
from .types import Attached, Session

_MARGIN = 1 / 12
REJOIN_AFTER = ("lapsed", "unknown")


class Membership:
    """A member from its join until it leaves, or is superseded or expelled.

    A thread sends the beats. After the reasons `lapsed` and `unknown` it joins again under a new tenure and claims
    again what was claimed; leases are lost. As a context manager it leaves at the end.
    """

    def __init__(
        self,
        http: Http,
        notifier: Worker,
        group: str,
        member: str,
        ttl: float,
        labels: Mapping[str, str],
        rejoin: bool,
        on_ended: Callable[[Membership, str, str], None] | None,
        on_rejoined: Callable[[Membership], None] | None,
        on_lease_lost: Callable[[Lease], None] | None,
    ) -> None:
        self._http, self._notifier, self.group, self.member, self.ttl = http, notifier, group, member, ttl
        self._labels, self._rejoin = dict(labels), rejoin
        self._on_ended, self._on_rejoined, self._on_lease_lost = on_ended, on_rejoined, on_lease_lost
        self._lock = threading.RLock()
        self._wakeup, self._is_leaving = threading.Event(), False
        self._join_is_unanswered = False
        self._holdings = _holdings.Holdings(self)
        self._tenure, self._confirmed, self._next_beat = "", 0.0, 0.0
        self._ended: str | None = None
        self._begin(self._call_join())
        self._thread = threading.Thread(target=self._run, name=f"tenure-beats-{member}", daemon=True)
        self._thread.start()

    # What the program asks.

    @property
    def tenure(self) -> str:
        """The current tenure, or the last one."""
        with self._lock:
            return self._tenure

    @property
    def ended(self) -> str | None:
        """Why the current tenure ended; None while it has not."""
        with self._lock:
            return self._ended

    def verdict(self) -> str:
        """`held`: act as a member. `uncertain`: pause. `lost`: stop. No network access."""
        with self._lock:
            age = now() - self._confirmed
            if self._ended or age >= self.ttl:
                return LOST
            return HELD if age < self.ttl * (1 - _MARGIN) else UNCERTAIN

    def valid_for(self) -> float:
        """Seconds for which the verdict stays `held` without a further beat; 0 if it is not held."""
        with self._lock:
            held = self._confirmed + self.ttl * (1 - _MARGIN) - now()
            return 0.0 if self._ended else max(0.0, held)

    def __enter__(self) -> Membership:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    # What the program does.

    def leave(self) -> None:
        """Ends the tenure and releases everything it holds. All verdicts are `lost` before the call is sent."""
        with self._lock:
            was_over = self._ended is not None and not self._may_rejoin(self._ended)
            self._is_leaving = True
            self._ended = self._ended or "left"
            self._holdings.forget()
        self._holdings.close()
        self._wakeup.set()
        self._thread.join()
        if not was_over:
            self._http.change("DELETE", path("groups", self.group, "tenures", self.tenure))

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """Replaces all labels, without a new tenure."""
        with self._lock:
            self._labels = dict(labels)
        self._act(
            "PUT", lambda tenure: path("groups", self.group, "tenures", tenure, "labels"), {"labels": dict(labels)}
        )

    def claim(self, registry: str, key: str, if_absent: bool = False) -> str:
        """Claims a key: `new`, `kept` or `moved`. With `if_absent` a living owner keeps it (`ClaimHeld`)."""
        body = {"if_absent": True} if if_absent else {}
        answer, tenure = self._act_under("PUT", self._claim_path(registry, key), body, in_body=True)
        self._holdings.claimed(registry, key, tenure)
        return str(answer["outcome"])

    def release_claim(self, registry: str, key: str) -> None:
        """Releases a key. It is not claimed again after a rejoin, even if this call fails."""
        self._holdings.unclaimed(registry, key)
        target = self._claim_path(registry, key)
        self._act("DELETE", lambda tenure: f"{target(tenure)}?tenure={tenure}")

    def acquire(self, lease: str, wait: float = 0.0, holders: int = 1, cancel: Cancel | None = None) -> Lease:
        """Acquires a lease, or waits up to `wait` seconds for it, first come, first served (`LeaseHeld` otherwise).

        `holders`: how many members may have it at a time. If the outcome stays unknown, a grant is given back in the
        background.
        """
        with self._holdings.asking(lease):
            body: dict[str, Any] = {} if holders == 1 else {"holders": holders}
            target = path("groups", self.group, "leases", lease, "acquire")
            try:
                answer, tenure = self._act_under("POST", lambda _: target, body, in_body=True, wait=wait, cancel=cancel)
            except TenureError as error:
                if error.outcome == UNKNOWN:
                    self._holdings.may_have(lease)
                raise
            waited = (answer.get("waited_ms") or 0) / 1000
            found = Lease(self, lease, tenure, answer["token"], answer.get("place") or 0, waited)
            return self._holdings.granted(found)

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
        kept = {"connection": connection, "alias": alias, "grace_ms": None if grace is None else int(grace * 1000)}
        kept = {name: value for name, value in kept.items() if value is not None}
        body = {**kept, **({"data": dict(data)} if data else {}), **({"resume_only": True} if resume_only else {})}
        target = path("groups", self.group, "sessions", session)
        answer, tenure = self._act_under("PUT", lambda _: target, body, in_body=True)
        self._holdings.attached(session, connection, tenure, answer["epoch"], kept)
        return Attached.read(answer.body)

    def detach(self, session: str, connection: str) -> None:
        """Detaches a connection. If it was attached again elsewhere meanwhile, it stays there."""
        epoch = self._holdings.detached(session, connection)
        tail = "" if epoch is None else f"&epoch={epoch}"
        target = path("groups", self.group, "sessions", session, "connections", connection)
        self._act("DELETE", lambda tenure: f"{target}?tenure={tenure}{tail}")

    def patch_session(self, session: str, data: Mapping[str, str | None]) -> Session:
        """Changes fields of a session's data; None removes one."""
        target = path("groups", self.group, "sessions", session)
        return Session.read(self._act("PATCH", lambda _: target, {"data": dict(data)}, in_body=True).body)

    # Acts under the tenure.

    def _claim_path(self, registry: str, key: str) -> Callable[[str], str]:
        target = path("groups", self.group, "registries", registry, "claims", key)
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
        """A change under the current tenure, and that tenure. Its answer explains the revision of the next beat."""
        with self._lock:
            tenure = self._tenure
            if self.verdict() == LOST:
                raise ended(tenure, self._ended)
        try:
            with self._holdings.acting():
                if in_body:
                    body = {**body, "tenure": tenure}
                answer = self._http.change(method, target(tenure), body, wait=wait, cancel=cancel)
                self._holdings.answered(tenure, answer.get("revision"))
                return answer, tenure
        except TenureEnded as error:
            self._end(tenure, error.reason or "unknown")
            raise

    def _lease_verdict(self, lease: Lease) -> str:
        with self._lock:
            if lease._is_lost or lease.tenure != self._tenure:
                return LOST
            verdict = self.verdict()
            if verdict == LOST:
                self._holdings.lose_all()
            return UNCERTAIN if verdict == HELD and self._holdings.is_doubted else verdict

    def _release(self, lease: Lease, to: str | None) -> None:
        if not self._holdings.released(lease):
            return
        target = path("groups", self.group, "leases", lease.name, "release")
        body = {"tenure": lease.tenure, "token": lease.token, **({"to": to} if to else {})}
        try:
            with self._holdings.acting():
                answer = self._http.change("POST", target, body)
                self._holdings.answered(lease.tenure, answer.get("revision"))
        except TenureEnded:
            pass  # It ended with the tenure.
        except TenureError as error:
            if error.code == "not_holder" and not to:
                return  # An earlier attempt released it, or it was taken away.
            if error.outcome == UNKNOWN:
                self._holdings.may_have(lease.name)
            raise

    # The beats.

    def _run(self) -> None:
        pause = self.ttl / 3 * random.uniform(0.5, 1)
        while not self._is_leaving:
            self._wakeup.wait(self._until_news(pause))
            self._wakeup.clear()
            with self._lock:
                is_over, reason = self._ended is not None, self._ended
                if not is_over and self.verdict() == LOST:
                    self._holdings.lose_all()
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

    def _until_news(self, pause: float) -> float:
        """Until the next beat, or until the leases are lost by time."""
        with self._lock:
            lost_in = self._confirmed + self.ttl - now()
        return min(pause, lost_in) if lost_in > 0 else pause

    def _beat(self) -> float:
        """Returns the pause after it."""
        with self._lock:
            tenure, (listed, known) = self._tenure, self._holdings.revisions()
        target = path("groups", self.group, "tenures", tenure, "beat")
        timeout = min(0.5, self.ttl / 6)
        try:
            answer = self._http.beat(target, {"revision": listed} if listed else {}, timeout)
            if answer.get("expires_in_ms") is None:
                raise Unreachable("an answer without 'expires_in_ms' is not of a daemon", UNCHANGED)
        except TenureEnded as error:
            self._end(tenure, error.reason or "unknown")
            return 0.0
        except TenureError as error:
            return max(self.ttl * _MARGIN, min(error.retry_after or 0.0, self.ttl / 3)) * random.uniform(0.9, 1)
        with self._lock:
            if self._ended or tenure != self._tenure:
                return 0.0
            if self.verdict() == LOST:
                # The membership recovers; leases stay lost.
                self._holdings.lose_all()
            self._confirmed = max(self._confirmed, answer.sent)
            self._holdings.compare(answer.get("revision") or 0, listed, known)
        return max(0.0, answer.sent + self.ttl / 3 * random.uniform(0.9, 1) - now())

    def _may_rejoin(self, reason: str | None) -> bool:
        return self._rejoin and reason in REJOIN_AFTER

    def _end(self, tenure: str, reason: str) -> None:
        """The tenure has ended at the daemon."""
        with self._lock:
            if self._ended or tenure != self._tenure:
                return
            self._ended = reason
            self._holdings.lose_all()
            if self._on_ended:
                tell = self._on_ended
                self._notifier.submit(lambda: tell(self, tenure, reason))
        self._wakeup.set()

    # Joining.

    def _call_join(self) -> Answer:
        # A late join would supersede the one that was repeated.
        self._http.learn()
        body = {"member": self.member, "ttl_ms": int(self.ttl * 1000), "labels": self._labels}
        return self._http.change("POST", path("groups", self.group, "members"), body)

    def _join_again(self) -> float:
        """Returns the pause after it."""
        try:
            if not self._join_is_unanswered and self._is_taken():
                # Another process of this name has begun since; joining would end it.
                with self._lock:
                    self._ended = "superseded"
                return 0.0
            joined = self._call_join()
        except TenureError as error:
            self._join_is_unanswered |= error.outcome == UNKNOWN
            return max(self.ttl * _MARGIN, error.retry_after or 0.0) * random.uniform(0.9, 1.2)
        self._begin(joined)
        if self._on_rejoined and not self._is_leaving:
            tell = self._on_rejoined
            self._notifier.submit(lambda: tell(self))
        return self.ttl / 3 * random.uniform(0.9, 1)

    def _is_taken(self) -> bool:
        found = self._http.find(path("groups", self.group, "members", self.member))
        return found is not None and found["alive"] and _term(found["tenure"]) > _term(self.tenure)

    def _begin(self, joined: Answer) -> None:
        with self._lock:
            self._tenure, self._confirmed = joined["tenure"], joined.sent
            self._ended = self._ended if self._is_leaving else None
            self._join_is_unanswered = False
            self._holdings.begin()
        self._next_beat = now() + self.ttl / 3 * random.uniform(0.5, 1)


def _term(tenure: str) -> int:
    return int(tenure.rpartition("@")[2])
