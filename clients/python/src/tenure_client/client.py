"""The client: joins groups, and reads what needs no membership."""

from __future__ import annotations

import json
import os
import random
import ssl
import time
import uuid
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any, Callable

from ._http import Http, path
from ._worker import Worker
from .errors import TenureError
from .lease import Lease
from .membership import Membership
from .types import Claim, Engagement, Event, Events, Gap, LeaseState, Member, Provider, Session, Target

# The daemon sends a comment every 15 s.
_SILENCE = 40.0


class Tenure:
    """A client of one daemon. Safe to use from many threads.

    `url` and `token` are taken from `TENURE_STORE` and `TENURE_TOKEN` if they are not given.
    """

    def __init__(
        self, url: str | None = None, *, token: str | None = None, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        url = url or os.environ.get("TENURE_STORE") or "http://127.0.0.1:7717"
        self._http = Http(url, token or os.environ.get("TENURE_TOKEN"), ssl_context)
        self._notifier = Worker("tenure-callbacks")

    def close(self) -> None:
        """Closes idle connections. Memberships go on; leave them first."""
        self._http.close()

    def join(
        self,
        group: str,
        member: str,
        *,
        ttl: float = 30.0,
        labels: Mapping[str, str] | None = None,
        rejoin: bool = True,
        on_ended: Callable[[Membership, str, str], None] | None = None,
        on_rejoined: Callable[[Membership], None] | None = None,
        on_lease_lost: Callable[[Lease], None] | None = None,
    ) -> Membership:
        """Joins a group and beats in a thread. A living member of the same name is superseded.

        The callbacks run in one thread of the client: `on_ended(membership, tenure, reason)`.
        """
        return Membership(
            self._http, self._notifier, group, member, ttl, labels or {}, rejoin, on_ended, on_rejoined, on_lease_lost
        )

    def members(self, group: str) -> Iterator[Member]:
        return map(Member.read, self._http.pages("members", "groups", group, "members"))

    def owner(self, group: str, registry: str, key: str) -> Claim | None:
        """Who owns a key; None if nobody does. Check `alive`."""
        found = self._http.find(path("groups", group, "registries", registry, "claims", key))
        return Claim.read(found.body) if found else None

    def lease(self, group: str, lease: str) -> LeaseState | None:
        """Who holds a lease; None if it is free."""
        found = self._http.find(path("groups", group, "leases", lease))
        return LeaseState.read(found.body) if found else None

    def targets(self, group: str) -> Iterator[Target]:
        """What the members of a fleet work on, each with its preferred member and its holder."""
        return map(Target.read, self._http.pages("targets", "groups", group, "targets"))

    def session(self, group: str, session: str) -> Session | None:
        found = self._http.find(path("groups", group, "sessions", session))
        return Session.read(found.body) if found else None

    def patch_session(self, group: str, session: str, data: Mapping[str, str | None]) -> Session:
        """Changes fields of a session's data, without a tenure; None removes one."""
        target = path("groups", group, "sessions", session)
        return Session.read(self._http.change("PATCH", target, {"data": dict(data)}).body)

    def events(self, group: str, after: int | str | None = None, limit: int = 100, wait: float = 0.0) -> Events:
        """A page of events, oldest first; waits up to `wait` seconds (at most half of one) if there are none."""
        wait_ms = int(min(wait, 0.5) * 1000) or None
        page = self._http.read(path("groups", group, "events", after=after, limit=limit, wait_ms=wait_ms))
        return Events([Event.of(event) for event in page["events"]], page["next"], page["missed"])

    def follow(self, group: str, after: int | str | None = None) -> EventStream:
        """All events after one, without end, also over broken connections."""
        return EventStream(self._http, group, after)

    def roster(self, name: str) -> Roster:
        return Roster(self._http, name)


class EventStream:
    """An iterator over `Event` and `Gap`. `close()` ends it, also from another thread."""

    def __init__(self, http: Http, group: str, after: int | str | None) -> None:
        self._http, self._target = http, path("groups", group, "events")
        self.last = None if after is None else str(after)
        """The id of the last event, to resume from."""
        self._is_closed = False
        self._connection = http.connection(_SILENCE)

    def close(self) -> None:
        self._is_closed = True
        self._connection.close()

    def __iter__(self) -> Iterator[Event | Gap]:
        pause = 0.0
        while not self._is_closed:
            time.sleep(pause)
            try:
                for item in self._read():
                    pause = 0.0
                    yield item
            except TenureError as error:
                if error.status < 500 and error.status != 429:
                    raise
                pause = error.retry_after or 0.0
            except (OSError, HTTPException, ValueError, AttributeError):
                pass  # Broken, or closed by another thread.
            pause = min(1.0, max(0.05, pause * 2)) * random.uniform(0.8, 1)

    def _read(self) -> Iterator[Event | Gap]:
        self._connection = self._http.connection(_SILENCE)
        try:
            response = self._http.stream(self._connection, self._target, self.last)
            last, kind, data = self.last, "message", ""
            for raw in response:
                line = raw.decode().rstrip("\r\n")
                name, _, value = line.partition(":")
                value = value[1:] if value.startswith(" ") else value
                if name == "id":
                    last = value
                elif name == "event":
                    kind = value
                elif name == "data":
                    data += value
                elif not line:
                    # Complete: a broken event does not count as read.
                    if data:
                        yield Gap() if kind == "gap" else Event.of(json.loads(data))
                    self.last, kind, data = last, "message", ""
        finally:
            self._connection.close()


class Roster:
    """Providers that come and go, and engagements that each takes up to its capacity."""

    def __init__(self, http: Http, name: str) -> None:
        self._http, self.name = http, name

    def put(self, provider: str, *, capacity: int | None = None, display_name: str | None = None) -> Provider:
        """Creates or changes a provider."""
        given = {"capacity": capacity, "display_name": display_name}
        return self._post("PUT", provider, body={name: value for name, value in given.items() if value is not None})

    def get(self, provider: str) -> Provider | None:
        found = self._http.find(path("rosters", self.name, "providers", provider))
        return Provider.read(found.body) if found else None

    def online(self, provider: str) -> Provider:
        """It comes. Send a `heartbeat` well within the roster's `stale_after` (60 s) from now on."""
        return self._post("POST", provider, "online")

    def heartbeat(self, provider: str) -> None:
        self._http.change("POST", path("rosters", self.name, "providers", provider, "heartbeat"))

    def offline(self, provider: str) -> Provider:
        return self._post("POST", provider, "offline")

    def available(self) -> Iterator[str]:
        """The providers that can take an engagement, the least occupied first."""
        pages = self._http.pages("providers", "rosters", self.name, "available")
        return (candidate["provider"] for candidate in pages)

    def reserve(self, engagement: str | None = None, *, expires_in: float | None = None) -> Engagement:
        """Engages an available provider. The same id again gives the same answer."""
        body: dict[str, Any] = {"engagement": engagement or f"e-{uuid.uuid4().hex}"}
        if expires_in is not None:
            body["expires_in_ms"] = int(expires_in * 1000)
        return Engagement.read(self._http.change("POST", path("rosters", self.name, "reserve"), body).body)

    def release(self, engagement: str) -> Engagement:
        """Ends an engagement."""
        target = path("rosters", self.name, "engagements", engagement)
        return Engagement.read(self._http.change("PATCH", target, {"status": "ended"}).body)

    def _post(self, method: str, provider: str, *parts: str, body: Mapping[str, Any] | None = None) -> Provider:
        answer = self._http.change(method, path("rosters", self.name, "providers", provider, *parts), body)
        return Provider.read(answer.body)
