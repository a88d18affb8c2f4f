"""Calls over HTTP: retries, waiting, and the limit after which a call must not take effect."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, NoReturn, TypeVar
from urllib.parse import quote, urlencode

from ._address import Address, Token
from ._cancel import Cancel
from ._clock import now
from ._connections import Connections, close, connect, limit
from .errors import UNCHANGED, UNKNOWN, NotFound, TenureError, Unreachable, from_problem

_T = TypeVar("_T")
ATTEMPT = 1.0
"""Seconds for one attempt."""
ATTEMPTS = 3
LONGEST_PAUSE = 1.0
"""A longer `retry_after` is left to the caller."""
LONGEST_WAIT = 60.0
"""The daemon's limit; a longer wait is made of parts."""
_OVER = 0.1
"""A wait with less than this left is over."""
_LARGEST = 1 << 26
"""Bytes of an answer."""
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?Z$")


def path(*parts: str, **query: object | None) -> str:
    """An escaped path below `/v1/`. Query parameters that are None are left out."""
    # `.` and `..` would be removed as steps of a path.
    escaped = "/".join(
        quote(part, safe=":@").replace(".", "%2E") if not part.strip(".") else quote(part, safe=":@") for part in parts
    )
    given = {name: str(value) for name, value in query.items() if value is not None}
    return f"/v1/{escaped}" + (f"?{urlencode(given)}" if given else "")


class Answer:
    """A successful answer, and when its request was sent. A field that no daemon sends makes it none."""

    def __init__(self, status: int, body: dict[str, Any], sent: float, lost: str) -> None:
        self.status, self.body, self.sent, self._lost = status, body, sent, lost

    def read(self, read: Callable[[dict[str, Any]], _T]) -> _T:
        try:
            return read(self.body)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise Unreachable(f"this answer is not of a daemon: {type(error).__name__}: {error}", self._lost) from error

    def number(self, field: str) -> int:
        return self.read(lambda body: number(body[field]))

    def text(self, field: str) -> str:
        return self.read(lambda body: text(body[field]))

    def revision(self) -> int:
        """0 if the daemon names none."""
        return self.read(lambda body: number(body.get("revision") or 0))


def number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise ValueError(f"{value!r:.40} is not a number")
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is not a text")
    return value


class Http:
    """The daemon at one URL. Safe to use from many threads."""

    def __init__(self, address: Address, token: Token) -> None:
        self.address, self._token, self._idle = address, token, Connections(address)
        self._store_time: tuple[datetime, float] | None = None

    def close(self) -> None:
        self._idle.clear()

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

    def pages(self, read: Callable[[Any], _T], field: str, *parts: str, **query: object | None) -> Iterator[_T]:
        """All items of a list."""
        after: str | None = None
        while True:
            page = self.read(path(*parts, limit=1000, after=after, **query))
            yield from page.read(lambda body: [read(item) for item in body[field]])
            before, after = after, following(page)
            if not after or after == before:
                return

    def change(
        self, method: str, target: str, body: Any = None, *, wait: float = 0.0, cancel: Cancel | None = None
    ) -> Answer:
        """A call that changes something. It is repeated when its answer was lost, so it has to be idempotent.

        `wait`: seconds for which it may wait at the daemon.
        """
        return self._repeat(method, target, body, wait, cancel)

    def beat(self, target: str, body: Any, timeout: float, own: Connections) -> Answer:
        """One attempt, without a limit in store time: a late beat does no harm."""
        return self._once("PUT", target, body, now() + timeout, {}, None, own)

    def _repeat(self, method: str, target: str, body: Any, wait: float, cancel: Cancel | None) -> Answer:
        end, attempt, is_unknown = now() + wait, 0, False
        while True:
            attempt += 1
            part = min(max(0.0, end - now()), LONGEST_WAIT)
            asked = {**body, "wait_ms": int(part * 1000)} if wait else body
            bound = self._limit(method, now() + ATTEMPT)
            try:
                return self._once(method, target, asked, now() + part + ATTEMPT, bound, cancel, self._idle)
            except TenureError as error:
                is_unknown |= error.outcome == UNKNOWN
                if is_unknown and (error.status == 0 or error.status == 429 or error.status >= 500):
                    error.outcome = UNKNOWN
                pause = _pause(error, attempt, end - now())
                if pause is None or (cancel and cancel.is_set):
                    raise
                cancel.wait(pause) if cancel else time.sleep(pause)

    def _limit(self, method: str, deadline: float) -> dict[str, str]:
        """The store's time at `deadline`, or earlier; nothing before the first answer."""
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
        bound: Mapping[str, str],
        cancel: Cancel | None,
        idle: Connections,
    ) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        kind = {} if data is None else {"Content-Type": "application/json"}
        headers = {"Accept": "application/json", **self._token.header(), **bound, **kind}
        lost, outcome = UNKNOWN if method != "GET" else UNCHANGED, UNCHANGED
        while True:
            connection, is_used = idle.take()
            try:
                limit(connection, deadline)
                sock = connection.sock or connect(connection)
                sock.settimeout(max(0.01, deadline - now()))
                if cancel and cancel.watch(sock):
                    raise ConnectionAbortedError("cancelled")
                outcome, sent = lost, now()
                connection.request(method, self.address.prefix + target, data, headers)
                response = connection.getresponse()
                if (response.length or 0) > _LARGEST:
                    raise http.client.HTTPException("the answer is too large")
                raw = response.read()
            except BaseException as error:
                close(connection)
                if not isinstance(error, (OSError, http.client.HTTPException, UnicodeError)):
                    raise
                if is_used and not (cancel and cancel.is_set):
                    # The others have likely been closed with it, by a proxy or the end of the daemon.
                    idle.clear()
                    if now() < deadline:
                        continue
                _unreachable(f"no answer to {method} {target}", error, outcome)
            finally:
                if cancel:
                    cancel.watch(None)
            self._learn(response.getheader("Tenure-Store-Time"))
            if response.will_close:
                close(connection)
            else:
                idle.give(connection)
            return self._answer(response.status, raw, sent, lost)

    def _answer(self, status: int, raw: bytes, sent: float, lost: str) -> Answer:
        try:
            body = json.loads(raw, parse_constant=_no_constant) if raw else {}
        except (ValueError, RecursionError):
            body = None
        if isinstance(body, dict) and 200 <= status < 300:
            return Answer(status, body, sent, lost)
        error = from_problem(status, body if isinstance(body, dict) else {}, lost)
        if error.code == "too_late":
            # The store's clock is not what was believed.
            self._store_time = None
        raise error

    def stream(self, connection: http.client.HTTPConnection, target: str, last: str | None) -> http.client.HTTPResponse:
        """Opens a stream of events after the event `last`."""
        headers = {"Accept": "text/event-stream", **self._token.header()}
        if last is not None:
            headers["Last-Event-ID"] = last
        connection.request("GET", self.address.prefix + target, None, headers)
        response = connection.getresponse()
        if response.status != 200:
            self._answer(response.status, response.read(_LARGEST), now(), UNCHANGED)
        return response

    def _learn(self, shown: str | None) -> None:
        match = _TIME.match(shown or "")
        if match:
            with contextlib.suppress(ValueError, OverflowError):  # The 31st of February.
                at = datetime.strptime(match[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
                self._store_time = (at + timedelta(seconds=float(match[2] or 0)), now())


def following(page: Answer) -> str | None:
    """The `after` of the next page."""
    return page.read(lambda body: text(body["next"]) if body.get("next") else None)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _unreachable(call: str, error: BaseException, outcome: str) -> NoReturn:
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    raise Unreachable(f"{call}: {what}", outcome) from error


def passes(error: TenureError) -> bool:
    """Whether the same call may succeed a little later."""
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return False
    is_early = error.status in (0, 429, 502, 503, 504) or error.code == "too_late"
    return is_early or (error.status == 500 and error.outcome == UNCHANGED)


def _pause(error: TenureError, attempt: int, left: float) -> float | None:
    """The pause before the next attempt; None if there is none. `left`: of a wait at the daemon."""
    pause = random.uniform(0.05, 0.1) * min(attempt, 10)
    if left > _OVER and error.code == "lease_held":
        return pause
    after = error.retry_after or 0.0
    if not passes(error) or (left <= _OVER and (attempt >= ATTEMPTS or after > LONGEST_PAUSE)):
        return None
    return min(after + pause, left) if left > _OVER else after + pause
