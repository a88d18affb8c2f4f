"""The client for asyncio.

Calls run in threads, and so do the beats: an event loop that is blocked does not stop them, and verdicts need no loop.
Callbacks run in the loop. A task that is cancelled in a call waits no longer; what the call obtains is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Callable, TypeVar

from . import client as sync
from ._threads import Call, Threads
from .lease import Lease as SyncLease
from .membership import Callbacks
from .membership import Membership as SyncMembership
from .roster import Roster as SyncRoster
from .types import (
    Attached,
    Claim,
    Engagement,
    Event,
    Events,
    Gap,
    LeaseState,
    LostClaim,
    Member,
    Provider,
    Session,
    Target,
)

_T = TypeVar("_T")


class Tenure:
    """A client of one daemon; see `tenure_client.Tenure`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._sync = sync.Tenure(*args, **options)
        self._threads = self._sync._threads

    async def close(self) -> None:
        self._sync.close()

    async def join(
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
        made = Membership(self._threads)
        callbacks = self._callbacks(made, on_ended, on_rejoined, on_lease_lost, on_claim_lost)
        joining = self._sync._joining(group, member, ttl, labels, rejoin, callbacks, patience)
        made._sync = await self._threads.run_async(joining)
        return made

    async def inherit(
        self,
        *,
        patience: float = 0.0,
        on_ended: Callable[[Membership, str, str], None] | None = None,
        on_rejoined: Callable[[Membership], None] | None = None,
        on_lease_lost: Callable[[Lease], None] | None = None,
        on_claim_lost: Callable[[LostClaim], None] | None = None,
    ) -> Membership:
        made = Membership(self._threads)
        callbacks = self._callbacks(made, on_ended, on_rejoined, on_lease_lost, on_claim_lost)
        made._sync = await self._threads.run_async(self._sync._inheriting(callbacks, patience))
        return made

    def _callbacks(
        self,
        made: Membership,
        on_ended: Callable[[Membership, str, str], None] | None,
        on_rejoined: Callable[[Membership], None] | None,
        on_lease_lost: Callable[[Lease], None] | None,
        on_claim_lost: Callable[[LostClaim], None] | None,
    ) -> Callbacks:
        loop = asyncio.get_running_loop()

        def tell(callback: Callable[..., None] | None, *args: Any) -> None:
            if callback:
                with contextlib.suppress(RuntimeError):  # The loop is closed.
                    loop.call_soon_threadsafe(callback, *args)

        return Callbacks(
            lambda _, tenure, reason: tell(on_ended, made, tenure, reason),
            lambda _: tell(on_rejoined, made),
            lambda lease: tell(on_lease_lost, Lease(lease, self._threads)),
            lambda claim: tell(on_claim_lost, claim),
        )

    async def _run(self, function: Callable[..., _T], *args: Any) -> _T:
        return await self._threads.run_async(Call(partial(function, *args)))

    async def members(self, group: str) -> list[Member]:
        return await self._run(self._sync._members, group)

    async def owner(self, group: str, registry: str, key: str) -> Claim | None:
        return await self._run(self._sync._owner, group, registry, key)

    async def lease(self, group: str, lease: str) -> LeaseState | None:
        return await self._run(self._sync._lease, group, lease)

    async def targets(self, group: str) -> list[Target]:
        return await self._run(self._sync._targets, group)

    async def put_target(self, group: str, target: str, *, paused: bool = False, weight: int = 1) -> None:
        await self._run(partial(self._sync.put_target, paused=paused, weight=weight), group, target)

    async def remove_target(self, group: str, target: str) -> None:
        await self._run(self._sync._remove_target, group, target)

    async def session(self, group: str, session: str) -> Session | None:
        return await self._run(self._sync._session, group, session)

    async def sessions(self, group: str, state: str | None = None, older_than: float = 0.0) -> list[Session]:
        return await self._run(self._sync._sessions, group, state, older_than)

    async def patch_session(self, group: str, session: str, data: Mapping[str, str | None]) -> Session:
        return await self._run(self._sync._patch_session, group, session, data)

    async def events(self, group: str, after: int | str | None = None, limit: int = 100) -> Events:
        return await self._run(self._sync._events, group, after, limit, 0.0)

    async def follow(self, group: str, after: int | str | None = None) -> AsyncIterator[Event | Gap]:
        """All events after one, without end, also over broken connections."""
        stream = self._sync.follow(group, after)
        items = iter(stream)
        try:
            while True:
                item = await self._run(next, items, None)
                if item is None:
                    return
                yield item
        finally:
            stream.close()

    def roster(self, name: str) -> Roster:
        return Roster(self._sync.roster(name))


class Membership:
    """As `tenure_client.Membership`. `async with` leaves at the end."""

    _sync: SyncMembership

    def __init__(self, threads: Threads) -> None:
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

    async def _run(self, function: Callable[..., _T], *args: Any) -> _T:
        return await self._threads.run_async(self._sync._calling(function, *args))

    async def lost_claims(self) -> list[LostClaim]:
        return await self._run(self._sync._holdings.take_lost_claims)

    async def leave(self) -> None:
        await self._threads.run_async(Call(self._sync._leave))

    async def set_labels(self, labels: Mapping[str, str]) -> None:
        await self._run(self._sync._set_labels, labels)

    async def claim(self, registry: str, key: str, if_absent: bool = False) -> str:
        return await self._threads.run_async(self._sync._claiming(registry, key, if_absent))

    async def release_claim(self, registry: str, key: str) -> None:
        await self._run(self._sync._release_claim, registry, key)

    async def acquire(self, lease: str, wait: float = 0.0, holders: int = 1) -> Lease:
        return Lease(await self._threads.run_async(self._sync._acquiring(lease, wait, holders)), self._threads)

    async def acquire_many(self, leases: Iterable[str]) -> list[Lease]:
        granted = await self._threads.run_async(self._sync._acquiring_many(list(leases)))
        return [Lease(lease, self._threads) for lease in granted]

    async def claim_many(self, registry: str, keys: Iterable[str]) -> dict[str, str]:
        return await self._threads.run_async(self._sync._claiming_many(registry, list(keys)))

    async def attach(
        self,
        session: str,
        connection: str,
        data: Mapping[str, str] | None = None,
        grace: float | None = None,
        alias: str | None = None,
        resume_only: bool = False,
    ) -> Attached:
        attaching = self._sync._attaching(session, connection, data, grace, alias, resume_only)
        return await self._threads.run_async(attaching)

    async def detach(self, session: str, connection: str) -> None:
        await self._run(self._sync._detach, session, connection)

    async def patch_session(self, session: str, data: Mapping[str, str | None]) -> Session:
        return await self._run(self._sync._patch_session, session, data)

    async def __aenter__(self) -> Membership:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._threads.run_async(Call(self._sync._finish))


class Lease:
    """As `tenure_client.Lease`. `async with` releases at the end."""

    def __init__(self, lease: SyncLease, threads: Threads) -> None:
        self._sync, self._threads = lease, threads
        self.name, self.tenure, self.token = lease.name, lease.tenure, lease.token
        self.place, self.generation, self.waited = lease.place, lease.generation, lease.waited

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lease) and self._sync is other._sync

    def __hash__(self) -> int:
        return hash(self._sync)

    def verdict(self) -> str:
        return self._sync.verdict()

    async def release(self, to: str | None = None) -> None:
        await self._threads.run_async(self._sync._releasing(to))

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._threads.run_async(Call(self._sync._finish))


class Roster:
    """As `tenure_client.Roster`."""

    def __init__(self, roster: SyncRoster) -> None:
        self._sync, self._threads = roster, roster._threads

    async def _run(self, function: Callable[..., _T], *args: Any) -> _T:
        return await self._threads.run_async(Call(partial(function, *args)))

    async def put(self, provider: str, *, capacity: int | None = None, display_name: str | None = None) -> Provider:
        return await self._threads.run_async(self._sync._putting(provider, capacity, display_name))

    async def get(self, provider: str) -> Provider | None:
        return await self._run(self._sync._get, provider)

    async def online(self, provider: str) -> Provider:
        return await self._threads.run_async(self._sync._posting(provider, "online"))

    async def heartbeat(self, provider: str) -> None:
        await self._run(self._sync._heartbeat, provider)

    async def offline(self, provider: str) -> Provider:
        return await self._threads.run_async(self._sync._posting(provider, "offline"))

    async def available(self) -> list[str]:
        return await self._run(self._sync._available)

    async def reserve(
        self,
        engagement: str | None = None,
        *,
        provider: str | None = None,
        exclude: Sequence[str] = (),
        expires_in: float | None = None,
    ) -> Engagement:
        return await self._threads.run_async(self._sync._reserving(engagement, expires_in, provider, exclude))

    async def release(self, engagement: str) -> Engagement:
        return await self._run(self._sync._release, engagement)
