"""The events of a group, one after the other, also over broken connections."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from http.client import HTTPException

from ._cancel import Cancel
from ._connections import close, connect
from ._http import ATTEMPT, Http, passes, path
from ._process import track
from .errors import TenureError
from .types import Event, Gap

# The daemon sends a comment every 15 s.
_SILENCE = 40.0


class EventStream:
    """An iterator over `Event` and `Gap`. `close()` ends it, also in another thread that waits for an event."""

    def __init__(self, http: Http, group: str, after: int | str | None) -> None:
        self._http, self._target = http, path("groups", group, "events")
        self.last = None if after is None else str(after)
        """The id of the last event, to resume from."""
        self._cancel = Cancel()
        track(self)

    def forked(self) -> None:
        """The connection is the parent's; a child opens its own."""
        self._cancel = Cancel()

    def close(self) -> None:
        self._cancel()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event | Gap]:
        pause = 0.0
        while not self._cancel.is_set:
            try:
                for item in self._read():
                    pause = 0.0
                    yield item
            except TenureError as error:
                if not (passes(error) or error.status >= 500):
                    raise
                pause = error.retry_after or 0.0
            except (OSError, HTTPException, ValueError, LookupError, TypeError, AttributeError, RecursionError):
                pass  # Broken, closed by another thread, or not of a daemon.
            pause = min(1.0, max(0.05, pause * 2)) * random.uniform(0.8, 1)
            self._cancel.wait(pause)

    def _read(self) -> Iterator[Event | Gap]:
        connection = self._http.address.connection(ATTEMPT)
        try:
            sock = connect(connection)
            sock.settimeout(_SILENCE)
            if self._cancel.watch(sock):
                return
            response = self._http.stream(connection, self._target, self.last)
            last, kind, data = self.last, "message", ""
            for raw in response:
                line = raw.decode().rstrip("\r\n")
                name, _, value = line.partition(":")
                value = value[1:] if value.startswith(" ") else value
                if name == "id":
                    last = value
                elif name == "event":
                    kind = value
                elif name == "data":
                    data += value
                elif not line:
                    # Complete: a broken event does not count as read.
                    if data:
                        yield Gap() if kind == "gap" else Event.of(json.loads(data))
                    self.last, kind, data = last, "message", ""
        finally:
            self._cancel.watch(None)
            close(connection)
