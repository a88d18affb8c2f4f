"""Ends a call from another thread."""

from __future__ import annotations

import contextlib
import socket
import threading


class Cancel:
    def __init__(self) -> None:
        self._event = threading.Event()
        self._sock: socket.socket | None = None

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def __call__(self) -> None:
        self._event.set()
        sock = self._sock
        if sock:
            shut(sock)

    def wait(self, seconds: float) -> None:
        self._event.wait(seconds)

    def watch(self, sock: socket.socket | None) -> bool:
        """Shuts the socket down when the call is cancelled. Returns whether it is already."""
        self._sock = sock
        return self.is_set


def shut(sock: socket.socket) -> None:
    """Ends what reads from it in another thread, and the connection, also if a forked child has a copy of it."""
    with contextlib.suppress(OSError, ValueError):  # It may be closed already.
        # Not as `SSLSocket` does it, which takes the TLS state away from the thread that reads.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
