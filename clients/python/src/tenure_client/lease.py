"""A held lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .membership import Membership

HELD, UNCERTAIN, LOST = "held", "uncertain", "lost"


class Lease:
    """A lease from its grant until it is lost or released. Work only while `verdict()` is `held`.

    As a context manager it is released at the end.
    """

    def __init__(self, membership: Membership, name: str, tenure: str, token: int, place: int, waited: float) -> None:
        self._membership = membership
        self.name = name
        self.tenure = tenure
        self.token = token
        """Give it to what you write to, so that it can reject late writers."""
        self.place = place
        """Which of the places of a shared lease this is, from 0."""
        self.waited = waited
        """Seconds in the queue."""
        self._is_lost = False

    def verdict(self) -> str:
        """`held`, `uncertain` or `lost`. No network access. Once `lost`, it stays lost: acquire again."""
        return self._membership._lease_verdict(self)

    def release(self, to: str | None = None) -> None:
        """Releases the lease, or hands it off to the member `to`. The verdict is `lost` before the call is sent.

        If the outcome stays unknown, the release is repeated in the background.
        """
        self._membership._release(self, to)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.release()
