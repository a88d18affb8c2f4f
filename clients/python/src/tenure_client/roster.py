"""Rosters: providers that come and go, and their engagements."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ._http import Http, path, text
from ._threads import Call, Threads
from .types import Engagement, Provider


class Roster:
    """Providers that come and go, and engagements that each takes up to its capacity."""

    def __init__(self, http: Http, threads: Threads, name: str) -> None:
        self._http, self._threads, self.name = http, threads, name

    def put(self, provider: str, *, capacity: int | None = None, display_name: str | None = None) -> Provider:
        """Creates or changes a provider."""
        return self._threads.run(self._putting(provider, capacity, display_name))

    def get(self, provider: str) -> Provider | None:
        return self._threads.run(Call(partial(self._get, provider)))

    def online(self, provider: str) -> Provider:
        """It comes. Send a `heartbeat` well within the roster's `stale_after` (60 s) from now on."""
        return self._threads.run(self._posting(provider, "online"))

    def heartbeat(self, provider: str) -> None:
        self._threads.run(Call(partial(self._heartbeat, provider)))

    def offline(self, provider: str) -> Provider:
        return self._threads.run(self._posting(provider, "offline"))

    def available(self) -> Iterator[str]:
        """The providers that can take an engagement, the least occupied first."""
        return iter(self._threads.run(Call(self._available)))

    def reserve(
        self,
        engagement: str | None = None,
        *,
        provider: str | None = None,
        exclude: Sequence[str] = (),
        expires_in: float | None = None,
    ) -> Engagement:
        """Engages an available provider, or the one that is named. The same id again gives the same answer."""
        return self._threads.run(self._reserving(engagement, expires_in, provider, exclude))

    def release(self, engagement: str) -> Engagement:
        """Ends an engagement."""
        return self._threads.run(Call(partial(self._release, engagement)))

    # The same in the thread of the call.

    def _putting(self, provider: str, capacity: int | None, display_name: str | None) -> Call[Provider]:
        given = {"capacity": capacity, "display_name": display_name}
        body = {name: value for name, value in given.items() if value is not None}
        return Call(partial(self._change, "PUT", body, provider))

    def _posting(self, provider: str, what: str) -> Call[Provider]:
        return Call(partial(self._change, "POST", None, provider, what))

    def _change(self, method: str, body: Mapping[str, Any] | None, *parts: str) -> Provider:
        return self._http.change(method, path("rosters", self.name, "providers", *parts), body).read(Provider.read)

    def _get(self, provider: str) -> Provider | None:
        found = self._http.find(path("rosters", self.name, "providers", provider))
        return found.read(Provider.read) if found else None

    def _heartbeat(self, provider: str) -> None:
        self._http.change("POST", path("rosters", self.name, "providers", provider, "heartbeat"))

    def _available(self) -> list[str]:
        return list(
            self._http.pages(lambda found: text(found["provider"]), "providers", "rosters", self.name, "available")
        )

    def _reserving(
        self, engagement: str | None, expires_in: float | None, provider: str | None, exclude: Sequence[str]
    ) -> Call[Engagement]:
        # The caller does not know an id that was made here.
        name = engagement or f"e-{uuid.uuid4().hex}"
        undo = None if engagement else lambda _: self._release(name)
        body: dict[str, Any] = {"engagement": name}
        if expires_in is not None:
            body["expires_in_ms"] = int(expires_in * 1000)
        if provider is not None:
            body["provider"] = provider
        if exclude:
            body["except"] = list(exclude)
        return Call(partial(self._reserve, body), undo)

    def _reserve(self, body: Mapping[str, Any]) -> Engagement:
        return self._http.change("POST", path("rosters", self.name, "reserve"), body).read(Engagement.read)

    def _release(self, engagement: str) -> Engagement:
        target = path("rosters", self.name, "engagements", engagement)
        return self._http.change("PATCH", target, {"status": "ended"}).read(Engagement.read)
