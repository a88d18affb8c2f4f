"""The client: joins groups, and reads what needs no membership."""

from __future__ import annotations

import contextlib
import math
import os
import ssl
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Callable

from ._address import Address, Token
from ._cancel import Cancel
from ._http import Http, following, path
from ._threads import Call, Threads
from ._worker import Worker
from ._wrapper import Wrapper
from .errors import NotFound
from .lease import Lease
from .membership import Callbacks, Membership, Options, generated_name
from .roster import Roster
from .stream import EventStream
from .types import Claim, Event, Events, LeaseState, LostClaim, Member, Session, Target


class Tenure:
    """A client of one daemon. Safe to use from many threads, signal handlers and forked children.

    `url` is taken from `TENURE_STORE` if it is not given, and `token` from the file `TENURE_TOKEN_FILE` or from
    `TENURE_TOKEN`. An https URL may name files: `?tls_ca=FILE&tls_cert=FILE&tls_key=FILE`.
    """

    def __init__(
        self, url: str | None = None, *, token: str | None = None, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        url = url or os.environ.get("TENURE_STORE") or "http://127.0.0.1:7717"
        self._http, self._threads = Http(Address(url, ssl_context), Token(token)), Threads()
        self._notifier = Worker("tenure-callbacks")

    def close(self) -> None:
        """Closes idle connections. Memberships go on; leave them first."""
        self._http.close()

    def join(
        self,
        group: str,
        member: str | None = None,
        *,
        ttl: float = 30.0,
        labels: Mapping[str, str] | None = None,
        rejoin: bool = True,
        patience: float = 0.0,
        on_ended: Callable[[Membership, str, str], None] | None = None,
        on_rejoined: Callable[[Membership], None] | None = None,
        on_lease_lost: Callable[[Lease], None] | None = None,
        on_claim_lost: Callable[[LostClaim], None] | None = None,
    ) -> Membership:
        """Joins a group and beats in a thread. A living member of the same name is superseded.

        Without a name one is generated. `patience`: seconds for which it tries again while the daemon is away. The
        callbacks run in one thread of the client: `on_ended(membership, tenure, reason)`.
        """
        callbacks = Callbacks(on_ended, on_rejoined, on_lease_lost, on_claim_lost)
        return self._threads.run(self._joining(group, member, ttl, labels, rejoin, callbacks, patience))

    def inherit(
        self,
        *,
        patience: float = 0.0,
        on_ended: Callable[[Membership, str, str], None] | None = None,
        on_rejoined: Callable[[Membership], None] | None = None,
        on_lease_lost: Callable[[Lease], None] | None = None,
        on_claim_lost: Callable[[LostClaim], None] | None = None,
    ) -> Membership:
        """Acts under the tenure of the `tenure join` or `tenure lock` around this process, without a join of its own.

        The tenure is the holder: processes that share it share its leases, so let each acquire others. `leave` ends the
        beats of this process; what it holds stays with the tenure until the wrapper leaves.
        """
        callbacks = Callbacks(on_ended, on_rejoined, on_lease_lost, on_claim_lost)
        return self._threads.run(self._inheriting(callbacks, patience))

    def _joining(
        self,
        group: str,
        member: str | None,
        ttl: float,
        labels: Mapping[str, str] | None,
        rejoin: bool,
        callbacks: Callbacks,
        patience: float,
    ) -> Call[Membership]:
        wrapper = Wrapper.find()
        if wrapper and (group, member) == (wrapper.group, wrapper.member):
            raise ValueError(
                f"{member} is the member of the wrapper around this process, and joining as it would end the wrapper; "
                "inherit() acts under its tenure"
            )
        return self._beginning(
            Options(group, member or generated_name(), ttl, labels or {}, rejoin, callbacks), patience
        )

    def _inheriting(self, callbacks: Callbacks, patience: float) -> Call[Membership]:
        wrapper = Wrapper.find()
        if wrapper is None:
            raise ValueError("TENURE_ID and TENURE_GROUP are not set: start this program by tenure join or tenure lock")
        return self._beginning(Options(wrapper.group, wrapper.member, 0.0, {}, True, callbacks, True), patience)

    def _beginning(self, options: Options, patience: float) -> Call[Membership]:
        cancel = Cancel()
        join = partial(Membership, self._http, self._threads, self._notifier, options, patience, cancel)
        # The call itself is not cut off: an answer that is lost would leave a member behind until it lapses.
        return Call(join, lambda made: made._leave() if made else None, cancel)

    def members(self, group: str) -> Iterator[Member]:
        return iter(self._threads.run(Call(partial(self._members, group))))

    def owner(self, group: str, registry: str, key: str) -> Claim | None:
        """The owner of a key; None if it has none. Check `alive`."""
        return self._threads.run(Call(partial(self._owner, group, registry, key)))

    def lease(self, group: str, lease: str) -> LeaseState | None:
        """Who holds a lease; None if it is free."""
        return self._threads.run(Call(partial(self._lease, group, lease)))

    def targets(self, group: str) -> Iterator[Target]:
        """What the members of a fleet work on, each with its preferred member and its holder."""
        return iter(self._threads.run(Call(partial(self._targets, group))))

    def put_target(self, group: str, target: str, *, paused: bool = False, weight: int = 1) -> None:
        """Adds a target for the members of a fleet, or changes it. A paused one is worked on by no member."""
        body = {"paused": paused, "weight": weight}
        self._threads.run(Call(partial(self._http.change, "PUT", path("groups", group, "targets", target), body)))

    def remove_target(self, group: str, target: str) -> None:
        self._threads.run(Call(partial(self._remove_target, group, target)))

    def session(self, group: str, session: str) -> Session | None:
        return self._threads.run(Call(partial(self._session, group, session)))

    def sessions(self, group: str, state: str | None = None, older_than: float = 0.0) -> Iterator[Session]:
        """The sessions, or those of a state: `active`, `disconnected` or `orphan`. With `older_than`, in seconds, those
        that have had no connection for at least so long."""
        return iter(self._threads.run(Call(partial(self._sessions, group, state, older_than))))

    def patch_session(self, group: str, session: str, data: Mapping[str, str | None]) -> Session:
        """Changes fields of a session's data, without a tenure; None removes one."""
        return self._threads.run(Call(partial(self._patch_session, group, session, data)))

    def events(self, group: str, after: int | str | None = None, limit: int = 100, wait: float = 0.0) -> Events:
        """A page of events, oldest first; waits up to `wait` seconds (at most half of one) if there are none."""
        return self._threads.run(Call(partial(self._events, group, after, limit, wait)))

    def follow(self, group: str, after: int | str | None = None) -> EventStream:
        """All events after one, without end, also over broken connections."""
        return EventStream(self._http, group, after)

    def roster(self, name: str) -> Roster:
        return Roster(self._http, self._threads, name)

    # The same in the thread of the call.

    def _members(self, group: str) -> list[Member]:
        return list(self._http.pages(Member.read, "members", "groups", group, "members"))

    def _owner(self, group: str, registry: str, key: str) -> Claim | None:
        found = self._http.find(path("groups", group, "registries", registry, "claims", key))
        return found.read(Claim.read) if found else None

    def _lease(self, group: str, lease: str) -> LeaseState | None:
        found = self._http.find(path("groups", group, "leases", lease))
        return found.read(LeaseState.read) if found else None

    def _targets(self, group: str) -> list[Target]:
        return list(self._http.pages(Target.read, "targets", "groups", group, "targets"))

    def _remove_target(self, group: str, target: str) -> None:
        with contextlib.suppress(NotFound):  # An earlier attempt removed it.
            self._http.change("DELETE", path("groups", group, "targets", target))

    def _sessions(self, group: str, state: str | None, older_than: float) -> list[Session]:
        age = math.ceil(older_than * 1000) or None
        pages = self._http.pages(Session.read, "sessions", "groups", group, "sessions", state=state, older_than_ms=age)
        return list(pages)

    def _session(self, group: str, session: str) -> Session | None:
        found = self._http.find(path("groups", group, "sessions", session))
        return found.read(Session.read) if found else None

    def _patch_session(self, group: str, session: str, data: Mapping[str, str | None]) -> Session:
        target = path("groups", group, "sessions", session)
        return self._http.change("PATCH", target, {"data": dict(data)}).read(Session.read)

    def _events(self, group: str, after: int | str | None, limit: int, wait: float) -> Events:
        wait_ms = int(min(wait, 0.5) * 1000) or None
        page = self._http.read(path("groups", group, "events", after=after, limit=limit, wait_ms=wait_ms))
        items = page.read(lambda body: [Event.of(event) for event in body["events"]])
        return Events(items, following(page) or "", page.read(lambda body: bool(body["missed"])))
