"""A held lease."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ._threads import LOG, Call
from .errors import TenureError

if TYPE_CHECKING:
    from .membership import Membership

HELD, UNCERTAIN, LOST = "held", "uncertain", "lost"


class Lease:
    """A lease from its grant until it is lost or released. Work only while `verdict()` is `held`.

    As a context manager it is released at the end. If that fails it is logged, and repeated in the background.
    """

    def __init__(
        self, membership: Membership, name: str, tenure: str, token: int, place: int, generation: int, waited: float
    ) -> None:
        self._membership = membership
        self.name = name
        self.tenure = tenure
        self.token = token
        """Give it to what you write to, so that it can reject late writers."""
        self.place = place
        """Which of the places of a shared lease this is, from 0."""
        self.generation = generation
        """Rises each time that the lease is granted while no place of it is taken. All holders have it in common."""
        self.waited = waited
        """Seconds in the queue."""
        self._is_lost = False
        self._users = 0  # The calls that returned it.

    def verdict(self) -> str:
        """`held`, `uncertain` or `lost`. No network access. Once `lost`, it stays lost: acquire again."""
        return self._membership._lease_verdict(self)

    def release(self, to: str | None = None) -> None:
        """Releases the lease, or hands it off to the member `to`. The verdict is `lost` before the call is sent.

        If the outcome stays unknown, the release is repeated in the background.
        """
        self._membership._threads.run(self._releasing(to))

    def _releasing(self, to: str | None = None) -> Call[None]:
        return Call(partial(self._membership._release, self, to))

    def _finish(self) -> None:
        """At the end of a `with` block, whose own outcome counts."""
        try:
            self._membership._release(self, None)
        except TenureError as error:
            LOG.warning("the release of %s failed: %s", self.name, error)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self._membership._threads.run(Call(self._finish))
