"""A daemon thread that runs functions one after the other."""

from __future__ import annotations

import heapq
import itertools
import threading
from typing import Callable

from ._clock import now
from ._process import track
from ._threads import LOG


class Worker:
    """Runs what it is given, each at its time. The thread starts with the first function."""

    def __init__(self, name: str) -> None:
        self._name, self._order = name, itertools.count()
        self._is_closed = False
        self.forked()
        track(self)

    def forked(self) -> None:
        """It has no thread yet, or its thread is in another process."""
        self._condition = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None], after: float = 0.0) -> None:
        with self._condition:
            if self._is_closed:
                return
            heapq.heappush(self._due, (now() + after, next(self._order), work))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._condition.notify()

    def close(self) -> None:
        """Drops what is not due. What is due, or running, is finished."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._due or self._due[0][0] > now():
                    if self._is_closed:
                        return
                    self._condition.wait(self._due[0][0] - now() if self._due else None)
                work = heapq.heappop(self._due)[2]
            try:
                work()
            except Exception:
                LOG.exception("an error in the thread %s", self._name)
