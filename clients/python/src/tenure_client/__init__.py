"""A client of the Tenure daemon: who is alive, who owns what.

    from tenure_client import Tenure

    with Tenure("http://127.0.0.1:7717").join("workers", "worker-1") as member:
        with member.acquire("report", wait=30) as lease:
            while lease.verdict() == "held":
                write(step(), token=lease.token)

`tenure_client.aio` is the same for asyncio.
"""

from .client import Tenure
from .errors import ClaimHeld, LeaseHeld, NotFound, TenureEnded, TenureError, Unreachable
from .fleet import Assignment, Fleet
from .lease import HELD, LOST, UNCERTAIN, Lease
from .membership import Membership
from .roster import Roster
from .stream import EventStream
from .types import (
    Attached,
    Claim,
    Engagement,
    Event,
    Events,
    Gap,
    LeaseState,
    LostClaim,
    Member,
    Provider,
    Session,
    Target,
)

__all__ = [
    "HELD",
    "LOST",
    "UNCERTAIN",
    "Assignment",
    "Attached",
    "Claim",
    "ClaimHeld",
    "Engagement",
    "Event",
    "EventStream",
    "Events",
    "Fleet",
    "Gap",
    "Lease",
    "LeaseHeld",
    "LeaseState",
    "LostClaim",
    "Member",
    "Membership",
    "NotFound",
    "Provider",
    "Roster",
    "Session",
    "Target",
    "Tenure",
    "TenureEnded",
    "TenureError",
    "Unreachable",
]
__version__ = "0.1.0"
