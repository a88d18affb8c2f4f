"""Forks: the child has one thread, locks that may be held for ever, and sockets that the parent uses."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class _Forked(Protocol):
    def forked(self) -> None: ...


_forks = 0
_tracked: weakref.WeakSet[_Forked] = weakref.WeakSet()


def here() -> tuple[int, int]:
    """Differs between a process and its forked children, also where a child has the same number (pid namespaces)."""
    return os.getpid(), _forks


def track(item: _Forked) -> None:
    """Calls its `forked()` in each forked child."""
    _tracked.add(item)


def _in_child() -> None:
    global _forks
    _forks += 1
    for item in list(_tracked):
        item.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
