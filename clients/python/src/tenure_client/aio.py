"""The client for asyncio.

Calls run in threads, and so do the beats: an event loop that is blocked does not stop them, and verdicts need no loop.
Callbacks run in the loop.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, TypeVar

from . import client as sync
from ._http import Cancel
from .lease import Lease as SyncLease
from .membership import Membership as SyncMembership
from .types import Attached, Claim, Engagement, Event, Events, Gap, LeaseState, Member, Provider, Session, Target

_T = TypeVar("_T")
_THREADS = 256


class _Threads:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tenure-calls")

    async def run(self, function: Callable[..., _T], *args: Any, **options: Any) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, functools.partial(function, *args, **options))

    def later(self, function: Callable[[], object]) -> None:
        self._pool.submit(function)

    def close(self) -> None:
        self._pool.shutdown(wait=False)


class Tenure:
    """A client of one daemon; see `tenure_client.Tenure`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._sync, self._threads = sync.Tenure(*args, **options), _Threads()

    async def close(self) -> None:
        self._sync.close()
        self._threads.close()

    async def join(
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
        loop, made = asyncio.get_running_loop(), Membership(self._threads)

        def ended(_: SyncMembership, tenure: str, reason: str) -> None:
            if on_ended:
                loop.call_soon_threadsafe(on_ended, made, tenure, reason)

        def rejoined(_: SyncMembership) -> None:
            if on_rejoined:
                loop.call_soon_threadsafe(on_rejoined, made)

        def lost(lease: SyncLease) -> None:
            if on_lease_lost:
                loop.call_soon_threadsafe(on_lease_lost, Lease(lease, self._threads))

        options = {"ttl": ttl, "labels": labels, "rejoin": rejoin}
        callbacks = {"on_ended": ended, "on_rejoined": rejoined, "on_lease_lost": lost}
        made._sync = await self._threads.run(self._sync.join, group, member, **options, **callbacks)
        return made

    async def members(self, group: str) -> list[Member]:
        return await self._threads.run(lambda: list(self._sync.members(group)))

    async def owner(self, group: str, registry: str, key: str) -> Claim | None:
        return await self._threads.run(self._sync.owner, group, registry, key)

    async def lease(self, group: str, lease: str) -> LeaseState | None:
        return await self._threads.run(self._sync.lease, group, lease)

    async def targets(self, group: str) -> list[Target]:
        return await self._threads.run(lambda: list(self._sync.targets(group)))

    async def session(self, group: str, session: str) -> Session | None:
        return await self._threads.run(self._sync.session, group, session)

    async def patch_session(self, group: str, session: str, data: Mapping[str, str | None]) -> Session:
        return await self._threads.run(self._sync.patch_session, group, session, data)

    async def events(self, group: str, after: int | str | None = None, limit: int = 100) -> Events:
        return await self._threads.run(self._sync.events, group, after, limit)

    async def follow(self, group: str, after: int | str | None = None) -> AsyncIterator[Event | Gap]:
        """All events after one, without end, also over broken connections."""
        stream = self._sync.follow(group, after)
        items = iter(stream)
        try:
            while True:
                item = await self._threads.run(next, items, None)
                if item is None:
                    return
                yield item
        finally:
            stream.close()

    def roster(self, name: str) -> Roster:
        return Roster(self._sync.roster(name), self._threads)


class Membership:
    """As `tenure_client.Membership`. `async with` leaves at the end."""

    _sync: SyncMembership

    def __init__(self, threads: _Threads) -> None:
        self._threads = threads

    @property
    def tenure(self) -> str:
        return self._sync.tenure

    @property
    def ended(self) -> str | None:
        return self._sync.ended

    @property
    def member(self) -> str:
        return self._sync.member

    def verdict(self) -> str:
        return self._sync.verdict()

    def valid_for(self) -> float:
        return self._sync.valid_for()

    async def leave(self) -> None:
        await self._threads.run(self._sync.leave)

    async def set_labels(self, labels: Mapping[str, str]) -> None:
        await self._threads.run(self._sync.set_labels, labels)

    async def claim(self, registry: str, key: str, if_absent: bool = False) -> str:
        return await self._threads.run(self._sync.claim, registry, key, if_absent)

    async def release_claim(self, registry: str, key: str) -> None:
        await self._threads.run(self._sync.release_claim, registry, key)

    async def acquire(self, lease: str, wait: float = 0.0, holders: int = 1) -> Lease:
        """Acquires a lease. A task that is cancelled here waits no longer, and gives back what was granted."""
        cancel = Cancel()
        call = asyncio.ensure_future(self._threads.run(self._sync.acquire, lease, wait, holders, cancel))
        try:
            return Lease(await asyncio.shield(call), self._threads)
        except asyncio.CancelledError:
            cancel()
            call.add_done_callback(self._give_back)
            raise

    def _give_back(self, call: asyncio.Future[SyncLease]) -> None:
        if not call.cancelled() and call.exception() is None:
            self._threads.later(call.result().release)

    async def attach(
        self,
        session: str,
        connection: str,
        data: Mapping[str, str] | None = None,
        grace: float | None = None,
        alias: str | None = None,
        resume_only: bool = False,
    ) -> Attached:
        return await self._threads.run(self._sync.attach, session, connection, data, grace, alias, resume_only)

    async def detach(self, session: str, connection: str) -> None:
        await self._threads.run(self._sync.detach, session, connection)

    async def patch_session(self, session: str, data: Mapping[str, str | None]) -> Session:
        return await self._threads.run(self._sync.patch_session, session, data)

    async def __aenter__(self) -> Membership:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()


class Lease:
    """As `tenure_client.Lease`. `async with` releases at the end."""

    def __init__(self, lease: SyncLease, threads: _Threads) -> None:
        self._sync, self._threads = lease, threads
        self.name, self.tenure, self.token = lease.name, lease.tenure, lease.token
        self.place, self.waited = lease.place, lease.waited

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lease) and self._sync is other._sync

    def __hash__(self) -> int:
        return hash(self._sync)

    def verdict(self) -> str:
        return self._sync.verdict()

    async def release(self, to: str | None = None) -> None:
        await self._threads.run(self._sync.release, to)

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()


class Roster:
    """As `tenure_client.Roster`."""

    def __init__(self, roster: sync.Roster, threads: _Threads) -> None:
        self._sync, self._threads = roster, threads

    async def put(self, provider: str, *, capacity: int | None = None, display_name: str | None = None) -> Provider:
        return await self._threads.run(self._sync.put, provider, capacity=capacity, display_name=display_name)

    async def get(self, provider: str) -> Provider | None:
        return await self._threads.run(self._sync.get, provider)

    async def online(self, provider: str) -> Provider:
        return await self._threads.run(self._sync.online, provider)

    async def heartbeat(self, provider: str) -> None:
        await self._threads.run(self._sync.heartbeat, provider)

    async def offline(self, provider: str) -> Provider:
        return await self._threads.run(self._sync.offline, provider)

    async def available(self) -> list[str]:
        return await self._threads.run(lambda: list(self._sync.available()))

    async def reserve(self, engagement: str | None = None, *, expires_in: float | None = None) -> Engagement:
        return await self._threads.run(self._sync.reserve, engagement, expires_in=expires_in)

    async def release(self, engagement: str) -> Engagement:
        return await self._threads.run(self._sync.release, engagement)
