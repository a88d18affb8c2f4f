"""A fleet: nodes that share targets, so that exactly one of them works on each."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Callable

from ._clock import now
from ._threads import LOG
from .errors import TenureError
from .lease import HELD, UNCERTAIN, Lease
from .membership import Membership
from .placement import rank
from .types import Member, Target

if TYPE_CHECKING:
    from .aio import Membership as AsyncMembership

DRAINING = "fleet.draining"
"""The registry in which a node that takes no more targets claims its own name."""
_WEIGHT = "fleet.weight"
_RANK_DELAY, _LONGEST_DELAY = 0.2, 2.0
_PAUSE = 0.05


class Assignment:
    """A target that this node works on, for as long as it holds its lease."""

    def __init__(self, target: str, lease: Lease) -> None:
        self.target, self.lease = target, lease
        self._stop = threading.Event()

    @property
    def token(self) -> int:
        """Give it to what you write to, so that it can reject late writers."""
        return self.lease.token

    def next_cycle(self, pause: float = 0.0) -> bool:
        """Waits for `pause` seconds, and until the lease is `held`. False: end the work."""
        self._stop.wait(pause)
        while not self._stop.is_set():
            verdict = self.lease.verdict()
            if verdict != UNCERTAIN:
                return verdict == HELD
            self._stop.wait(_PAUSE)
        return False


class Fleet:
    """This node's part in a fleet. Every node of the group runs the same program.

    `work(assignment)` runs in a thread for each target whose lease this node holds, and continues while
    `assignment.next_cycle(pause)`. A target is taken by the node that it prefers; when that one does not come, by the
    next one. It moves to a node that it prefers after `stability` seconds. Work that does not end keeps its lease.

    Targets are those of the group (`Tenure.put_target`). They are read `every` so many seconds. A member of
    `tenure_client.aio` can have a fleet as well; its work runs in threads, too, and `drain` blocks.
    """

    def __init__(
        self,
        member: Membership | AsyncMembership,
        work: Callable[[Assignment], object],
        *,
        every: float = 0.5,
        stability: float = 10.0,
    ) -> None:
        self._member = member if isinstance(member, Membership) else member._sync
        self._work, self._every, self._stability = work, every, stability
        self._held: dict[str, tuple[Assignment, threading.Thread]] = {}
        self._free_since: dict[str, float] = {}
        self._away_since: dict[str, float] = {}  # Held here, and preferred elsewhere.
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tenure-fleet", daemon=True)
        self._thread.start()

    @property
    def held(self) -> list[str]:
        """The targets that this node works on."""
        return sorted(self._held)

    def drain(self, within: float = 5.0) -> list[str]:
        """Ends the work, and releases the leases to the other nodes. Then the member can leave.

        Returns the targets whose work did not end in time. Their leases are still held: end the process, so that they
        are free after its ttl.
        """
        self._ending.set()
        self._thread.join()
        try:
            self._member.claim(DRAINING, self._member.member)
        except TenureError as error:
            LOG.warning("the other nodes do not know that %s drains: %s", self._member.member, error)
        end = now() + within
        for assignment, _ in self._held.values():
            assignment._stop.set()
        for _, thread in list(self._held.values()):
            thread.join(max(0.0, end - now()))
        for name in self.held:
            self._give_up(name)
        return self.held

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.drain()

    def _run(self) -> None:
        while not self._ending.wait(self._every):
            try:
                self._look()
            except TenureError as error:
                # Work on held leases continues while their verdict is held.
                LOG.info("the targets of %s were not read: %s", self._member.group, error)
            except Exception:
                LOG.exception("the fleet of %s continues after an error", self._member.group)

    def _look(self) -> None:
        group = self._member.group
        targets = {
            item.target: item for item in self._member._pages(Target.read, "targets", "groups", group, "targets")
        }
        for name, (_, thread) in list(self._held.items()):
            if name not in targets or targets[name].paused or not thread.is_alive():
                self._give_up(name)
        self._hand_over(targets)
        wanted = self._wanted(targets)
        for lease in self._member.acquire_many(wanted) if wanted else []:
            self._begin(lease)

    def _begin(self, lease: Lease) -> None:
        def run() -> None:
            try:
                self._work(assignment)
            except Exception:
                LOG.exception("the work on %s failed; it is begun again", lease.name)

        assignment = Assignment(lease.name, lease)
        thread = threading.Thread(target=run, name=f"tenure-fleet-{lease.name}", daemon=True)
        self._held[lease.name] = (assignment, thread)
        thread.start()

    def _hand_over(self, targets: dict[str, Target]) -> None:
        """Gives targets to nodes that they have preferred for long, so that one that comes and goes moves nothing."""
        away = {name for name in self._held if targets[name].preferred not in (None, self._member.member)}
        self._away_since = {name: self._away_since.get(name, now()) for name in away}
        for name, since in self._away_since.items():
            if now() - since >= self._stability:
                self._give_up(name, targets[name].preferred)

    def _wanted(self, targets: dict[str, Target]) -> list[str]:
        """Free targets whose turn for this node has come. Held by this tenure without work: an answer was lost."""
        mine = self._member.tenure
        free = [
            item
            for name, item in targets.items()
            if not item.paused and name not in self._held and (item.tenure == mine or not item.alive)
        ]
        self._free_since = {item.target: self._free_since.get(item.target, now()) for item in free}
        astray = [item for item in free if item.preferred != self._member.member]
        nodes = self._nodes() if astray else {}
        return [item.target for item in free if now() - self._free_since[item.target] >= self._delay(item, nodes)]

    def _delay(self, target: Target, nodes: dict[str, int]) -> float:
        if target.preferred == self._member.member:
            return 0.0
        order = rank(target.target, nodes)
        place = order.index(self._member.member) if self._member.member in order else len(order)
        return min(place * _RANK_DELAY, _LONGEST_DELAY)

    def _nodes(self) -> dict[str, int]:
        members: Iterable[Member] = self._member._pages(Member.read, "members", "groups", self._member.group, "members")
        return {member.member: _weight(member) for member in members if member.alive}

    def _give_up(self, name: str, to: str | None = None) -> None:
        """Stops the work. Its lease is released when it has ended."""
        assignment, thread = self._held[name]
        assignment._stop.set()
        thread.join(_PAUSE)
        if thread.is_alive():
            return
        del self._held[name]
        try:
            assignment.lease.release(to)
        except TenureError as error:
            LOG.info("the release of %s is repeated: %s", name, error)


def _weight(member: Member) -> int:
    label = member.labels.get(_WEIGHT, "")
    return int(label) if label.isascii() and label.isdigit() else 1
