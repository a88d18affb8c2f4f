"""Calls over HTTP: connections, retries, and the limit after which a call must not take effect."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ._clock import now
from .errors import UNCHANGED, UNKNOWN, NotFound, TenureError, Unreachable, from_problem

ATTEMPT = 1.0
"""Seconds for one attempt."""
ATTEMPTS = 3
LONGEST_PAUSE = 1.0
"""A longer `retry_after` is left to the caller."""
# Shorter than at the daemon (30 s), so that a call rarely meets a connection that is closing.
_IDLE = 20.0
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?Z$")


def path(*parts: str, **query: object | None) -> str:
    """An escaped path below `/v1/`. Query parameters that are None are left out."""
    # `.` and `..` would be removed as steps of a path.
    escaped = "/".join(
        quote(part, safe=":@").replace(".", "%2E") if not part.strip(".") else quote(part, safe=":@") for part in parts
    )
    given = {name: str(value) for name, value in query.items() if value is not None}
    return f"/v1/{escaped}" + (f"?{urlencode(given)}" if given else "")


class Answer:
    """A successful answer, and when its request was sent."""

    def __init__(self, status: int, body: dict[str, Any], sent: float, lost: str) -> None:
        self.status, self.body, self.sent, self._lost = status, body, sent, lost

    def __getitem__(self, field: str) -> Any:
        if field not in self.body:
            raise Unreachable(f"an answer without {field!r} is not of a daemon", self._lost)
        return self.body[field]

    def get(self, field: str) -> Any:
        return self.body.get(field)


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


class Cancel:
    """Ends a call from another thread."""

    def __init__(self) -> None:
        self.is_set = False
        self._connection: http.client.HTTPConnection | None = None

    def __call__(self) -> None:
        self.is_set = True
        connection = self._connection
        if connection and connection.sock:
            with contextlib.suppress(OSError):  # It may be closed already.
                connection.sock.shutdown(socket.SHUT_RDWR)

    def watch(self, connection: http.client.HTTPConnection | None) -> None:
        self._connection = connection


class Http:
    """The daemon at one URL. Safe to use from many threads."""

    def __init__(self, url: str, token: str | None, context: ssl.SSLContext | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not the URL of a daemon: {url!r}; expected http://HOST:PORT")
        self._parts, self._context, self._prefix = parts, context, parts.path.rstrip("/")
        self._headers = {"Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._lock = threading.Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._store_time: tuple[datetime, float] | None = None

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def read(self, target: str) -> Answer:
        return self._repeat("GET", target, None, 0.0, None)

    def learn(self) -> None:
        """Asks for the store's time unless it is known. A call without a limit may take effect after its repetition."""
        if self._store_time is None:
            self.read(path("now"))

    def find(self, target: str) -> Answer | None:
        """As `read`; None if it does not exist."""
        try:
            return self.read(target)
        except NotFound:
            return None

    def pages(self, field: str, *parts: str, **query: object | None) -> Iterator[Mapping[str, Any]]:
        """All items of a list."""
        after: str | None = None
        while True:
            page = self.read(path(*parts, limit=1000, after=after, **query))
            yield from page[field]
            after = page.get("next")
            if not after:
                return

    def change(
        self, method: str, target: str, body: Any = None, *, wait: float = 0.0, cancel: Cancel | None = None
    ) -> Answer:
        """A call that changes something. It is repeated when its answer was lost, so it has to be idempotent."""
        return self._repeat(method, target, body, wait, cancel)

    def beat(self, target: str, body: Any, timeout: float) -> Answer:
        """One attempt, without a limit in store time: a late beat does no harm."""
        return self._once("PUT", target, body, now() + timeout, {}, None)

    def _repeat(self, method: str, target: str, body: Any, wait: float, cancel: Cancel | None) -> Answer:
        end, is_unknown = now() + wait, False
        for attempt in range(1, ATTEMPTS + 1):
            left = max(0.0, end - now())
            asked = {**body, "wait_ms": int(left * 1000)} if wait else body
            deadline = now() + left + ATTEMPT
            try:
                return self._once(method, target, asked, deadline, self._limit(method, now() + ATTEMPT), cancel)
            except TenureError as error:
                is_unknown |= error.outcome == UNKNOWN
                if is_unknown and (error.status == 0 or error.status == 429 or error.status >= 500):
                    error.outcome = UNKNOWN
                pause = _pause(error, attempt)
                if pause is None or (cancel and cancel.is_set) or (wait and attempt > 1 and now() + pause >= end):
                    raise
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _limit(self, method: str, deadline: float) -> dict[str, str]:
        """The store's time at `deadline`, or earlier; nothing before the first answer."""
        with self._lock:
            known = self._store_time
        if method == "GET" or known is None:
            return {}
        try:
            at = known[0] + timedelta(seconds=deadline - known[1])
        except OverflowError:
            return {}
        return {"Tenure-Not-After": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}

    def _once(
        self,
        method: str,
        target: str,
        body: Any,
        deadline: float,
        limit: Mapping[str, str],
        cancel: Cancel | None,
    ) -> Answer:
        changes, sent = method != "GET", now()
        outcome = UNCHANGED
        connection = self._take(deadline - sent)
        if cancel:
            cancel.watch(connection)
        try:
            connection.timeout = max(0.01, deadline - now())
            connection.response_class = partial(_response, deadline)  # type: ignore[assignment]
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(connection.timeout)
            outcome = UNKNOWN if changes else UNCHANGED
            data = None if body is None else json.dumps(body).encode()
            kind = {} if data is None else {"Content-Type": "application/json"}
            sent = now()
            connection.request(method, self._prefix + target, data, {**self._headers, **limit, **kind})
            response = connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise Unreachable(f"no answer to {method} {target}: {what}", outcome) from error
        finally:
            if cancel:
                cancel.watch(None)
        self._learn(response.getheader("Tenure-Store-Time"))
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append((now(), connection))
        return self._answer(response.status, raw, sent, changes)

    def _answer(self, status: int, raw: bytes, sent: float, changes: bool) -> Answer:
        lost = UNKNOWN if changes else UNCHANGED
        try:
            body = json.loads(raw) if raw else {}
        except (ValueError, RecursionError):
            body = None
        if isinstance(body, dict) and 200 <= status < 300:
            return Answer(status, body, sent, lost)
        error = from_problem(status, body if isinstance(body, dict) else {}, lost)
        if error.code == "too_late":
            # The store's clock is not what was believed.
            with self._lock:
                self._store_time = None
        raise error

    def _take(self, timeout: float) -> http.client.HTTPConnection:
        with self._lock:
            while self._idle:
                since, connection = self._idle.pop()
                if now() - since < _IDLE:
                    return connection
                connection.close()
        return self.connection(timeout)

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        """A new connection, not yet open."""
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def stream(self, connection: http.client.HTTPConnection, target: str, last: str | None) -> http.client.HTTPResponse:
        """Opens a stream of events after the event `last`."""
        headers = {**self._headers, "Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = last
        connection.request("GET", self._prefix + target, None, headers)
        response = connection.getresponse()
        if response.status != 200:
            self._answer(response.status, response.read(), now(), False)
        return response

    def _learn(self, shown: str | None) -> None:
        match = _TIME.match(shown or "")
        if match:
            with contextlib.suppress(ValueError), self._lock:  # The 31st of February.
                at = datetime.strptime(match[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
                self._store_time = (at + timedelta(seconds=float(match[2] or 0)), now())


def _pause(error: TenureError, attempt: int) -> float | None:
    """The pause before the next attempt; None if there is none."""
    again = error.status in (0, 429, 502, 503, 504) or error.code == "too_late"
    again |= error.status == 500 and error.outcome == UNCHANGED
    if not again or attempt == ATTEMPTS or (error.retry_after or 0) > LONGEST_PAUSE:
        return None
    return (error.retry_after or 0) + random.uniform(0.05, 0.1) * attempt
