"""Presents `tenure_client.aio` to the driver like the synchronous package: each call is awaited in one event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

from tenure_client import aio

LOOP = asyncio.new_event_loop()
WRAPPED = (aio.Membership, aio.Lease, aio.Roster)


class Awaited:
    """An object of the package; what its methods return is awaited."""

    def __init__(self, item: Any) -> None:
        self._item = item

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Awaited) and bool(self._item == other._item)

    def __hash__(self) -> int:
        return hash(self._item)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._item, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            callbacks = {key: wrap(value) if callable(value) else value for key, value in options.items()}
            result = found(*args, **callbacks)
            if inspect.isasyncgen(result):
                return Items(result)
            if inspect.isawaitable(result):
                result = asyncio.run_coroutine_threadsafe(awaited(result), LOOP).result()
            return Awaited(result) if isinstance(result, WRAPPED) else result

        return call


def wrap(callback: Any) -> Any:
    return lambda item, *rest: callback(Awaited(item), *rest)


async def awaited(result: Any) -> Any:
    return await result


class Items:
    def __init__(self, items: AsyncIterator[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield asyncio.run_coroutine_threadsafe(awaited(self._items.__anext__()), LOOP).result()
            except StopAsyncIteration:
                return


def client() -> Any:
    """A client whose event loop runs in a thread."""
    threading.Thread(target=LOOP.run_forever, daemon=True).start()

    async def make() -> aio.Tenure:
        return aio.Tenure()

    return Awaited(asyncio.run_coroutine_threadsafe(make(), LOOP).result())
