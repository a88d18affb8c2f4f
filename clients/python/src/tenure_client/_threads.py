"""Threads for calls, and what becomes of a call when its caller stops waiting."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Generic, TypeVar

from ._cancel import Cancel
from ._process import track
from .errors import UNCHANGED, UNKNOWN, TenureError, Unreachable

LOG = logging.getLogger("tenure_client")
_T = TypeVar("_T")
_KEPT = 10.0
"""Seconds for which a thread without a call is kept."""


@dataclass(frozen=True)
class Call(Generic[_T]):
    function: Callable[[], _T]
    undo: Callable[[_T | None], object] | None = None
    """Gives back what the function returned, or, given None, what it may have obtained: its outcome is unknown."""
    cancel: Cancel | None = None


class Threads:
    """A daemon thread for each call that is under way, however many there are: a waiting call delays no other.

    The caller may stop waiting: a signal handler raises an exception, or its task is cancelled. The call still ends in
    its thread, and what it obtained is given back. The caller's thread holds no lock of this package, so a signal
    handler may make calls.
    """

    def __init__(self) -> None:
        self._idle: deque[queue.SimpleQueue[Callable[[], None]]] = deque()
        track(self)

    def forked(self) -> None:
        self._idle = deque()

    def run(self, call: Call[_T]) -> _T:
        future: Future[_T] = Future()
        try:
            try:
                self._start(future, call.function)
            except RuntimeError:  # The interpreter shuts down, or the system has no more threads.
                _complete(future, call.function)
            error = future.exception()
            if error is None:
                return future.result()
        except BaseException:
            self._abandon(future, call)
            raise
        try:
            raise error
        finally:
            del error  # It refers to this frame.

    async def run_async(self, call: Call[_T]) -> _T:
        future: Future[_T] = Future()
        try:
            try:
                self._start(future, call.function)
            except RuntimeError as error:
                raise Unreachable(f"no thread for the call: {error}", UNCHANGED) from error
            return await asyncio.wrap_future(future)
        except (asyncio.CancelledError, GeneratorExit):
            self._abandon(future, call)
            raise

    def _abandon(self, future: Future[_T], call: Call[_T]) -> None:
        if call.cancel:
            call.cancel()
        if call.undo:
            undo = call.undo
            future.add_done_callback(lambda done: self._start(Future(), lambda: _undo(done, undo)))

    def _start(self, future: Future[Any], function: Callable[[], Any]) -> None:
        work = partial(_complete, future, function)
        try:
            # A cancelled task cancels what has not begun. A release must not be among it.
            future.set_running_or_notify_cancel()
            self._idle.pop().put(work)
        except IndexError:
            inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
            inbox.put(work)
            threading.Thread(target=self._serve, args=(inbox,), name="tenure-call", daemon=True).start()

    def _serve(self, inbox: queue.SimpleQueue[Callable[[], None]]) -> None:
        while True:
            try:
                inbox.get(timeout=_KEPT)()
            except queue.Empty:
                try:
                    self._idle.remove(inbox)
                except ValueError:
                    continue  # A caller has taken it and is about to put a call in.
                return
            self._idle.append(inbox)


def _complete(future: Future[_T], function: Callable[[], _T]) -> None:
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def _undo(done: Future[_T], undo: Callable[[_T | None], object]) -> None:
    error = done.exception()
    try:
        if error is None:
            undo(done.result())
        elif isinstance(error, TenureError) and error.outcome == UNKNOWN:
            undo(None)
    except TenureError as failed:
        LOG.warning("what an abandoned call obtained may not be given back: %s", failed)
