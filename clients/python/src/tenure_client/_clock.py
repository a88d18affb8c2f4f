"""A clock that counts suspend, unlike `time.monotonic()`."""

from __future__ import annotations

import sys
import time
from typing import Callable


def _emulated() -> Callable[[], float]:
    """The monotonic clock, ahead by as much as the wall clock ran ahead of it: never behind the true time."""
    mono, wall, ahead = time.monotonic(), time.time(), 0.0

    def now() -> float:
        # Without a lock, which could be held by a thread that a fork left behind.
        nonlocal ahead
        passed = time.monotonic() - mono
        ahead = max(ahead, time.time() - wall - passed)
        return passed + ahead

    return now


def _clock() -> Callable[[], float]:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        # There it includes sleep.
        return lambda: time.clock_gettime(time.CLOCK_MONOTONIC)
    return _emulated()


now = _clock()
