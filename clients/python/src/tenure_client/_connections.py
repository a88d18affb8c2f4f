"""Open connections: idle ones, reading until a deadline, and what a fork does to them."""

from __future__ import annotations

import http.client
import io
import os
import select
import socket
import weakref
from functools import partial
from typing import Any

from ._address import Address
from ._cancel import shut
from ._clock import now
from ._process import here, track

# Shorter than at the daemon (30 s), so that a call rarely meets a connection that is closing.
_IDLE = 20.0
_KEPT = 32


class _Limited(io.RawIOBase):
    """Reads from a socket until a deadline, however slowly the bytes arrive."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - now()
        if left <= 0:
            raise socket.timeout("the answer is not complete")
        self._sock.settimeout(left)
        return self._sock.recv_into(buffer)


def _response(deadline: float, sock: socket.socket, *args: Any, **options: Any) -> http.client.HTTPResponse:
    limited: Any = _Limited(sock, deadline)
    return http.client.HTTPResponse(limited, *args, **options)


class _Sockets:
    """All sockets of this package. A forked child closes them, or the daemon would not see its parent close one."""

    def __init__(self) -> None:
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        track(self)

    def add(self, sock: socket.socket) -> None:
        self._open.add(sock)

    def forked(self) -> None:
        for sock in list(self._open):
            # Not `close()`: it waits for a thread that reads, which the child does not have.
            descriptor = sock.detach()
            if descriptor >= 0:
                os.close(descriptor)


_SOCKETS = _Sockets()


def connect(connection: http.client.HTTPConnection) -> socket.socket:
    """Opens a connection. Another thread may use the socket to end it."""
    connection.connect()
    sock: socket.socket = connection.sock
    _SOCKETS.add(sock)
    return sock


def close(connection: http.client.HTTPConnection) -> None:
    if connection.sock:
        shut(connection.sock)
    connection.close()


class Connections:
    """Connections of calls that are over, for the next ones."""

    def __init__(self, address: Address) -> None:
        self._address, self._home = address, here()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        track(self)

    def forked(self) -> None:
        _SOCKETS.forked()
        self._idle, self._home = [], here()

    def take(self) -> tuple[http.client.HTTPConnection, bool]:
        """A connection for one call, and whether it was used before."""
        if self._home != here():
            self.forked()
        while True:
            try:
                since, connection = self._idle.pop()
            except IndexError:
                return self._address.connection(0.0), False
            if now() - since < _IDLE and not _is_over(connection.sock):
                return connection, True
            close(connection)

    def give(self, connection: http.client.HTTPConnection) -> None:
        self._idle.append((now(), connection))
        if len(self._idle) > _KEPT:
            close(self._idle.pop(0)[1])

    def clear(self) -> None:
        idle, self._idle = self._idle, []
        for _, connection in idle:
            close(connection)


def limit(connection: http.client.HTTPConnection, deadline: float) -> None:
    """Ends the next call on the connection at the deadline."""
    connection.timeout = max(0.01, deadline - now())
    connection.response_class = partial(_response, deadline)  # type: ignore[assignment]


def _is_over(sock: socket.socket | None) -> bool:
    """Whether an idle connection was closed by its other end, or has sent data that belongs to no call."""
    if sock is None:
        return True
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(sock, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([sock], [], [], 0)[0])
    except (OSError, ValueError):
        return True
