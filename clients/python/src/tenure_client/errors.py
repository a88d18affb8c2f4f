"""Errors. Programs check the class or `code`; the text is for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNCHANGED, UNKNOWN = "unchanged", "unknown"
FORKED = "forked"
"""Why a membership has ended in a child of its process."""
_LONGEST = 366 * 24 * 3_600_000
"""A `retry_after_ms` above this is no daemon's."""


class TenureError(Exception):
    """A call that failed."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status: int = 0,
        outcome: str = UNCHANGED,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        """The stable code of the problem, such as `lease_held`."""
        self.status = status
        """The HTTP status; 0 without an answer."""
        self.outcome = outcome
        """`unchanged`: the call certainly did nothing. `unknown`: it may have taken effect."""
        self.problem: Mapping[str, Any] = problem or {}
        """All fields of the answer."""
        self.reason: str | None = self.problem.get("reason")
        """Why a tenure ended, if that is the error."""
        wait = self.problem.get("retry_after_ms")
        self.retry_after: float | None = wait / 1000 if type(wait) is int and 0 <= wait <= _LONGEST else None
        """Seconds after which trying again makes sense."""


class Unreachable(TenureError):
    """There was no usable answer."""

    def __init__(self, message: str, outcome: str) -> None:
        super().__init__(message, code="unreachable", outcome=outcome)


class TenureEnded(TenureError):
    """The tenure has ended; nothing can be done under it any more."""


class LeaseHeld(TenureError):
    """Another member has the lease."""


class ClaimHeld(TenureError):
    """A living member owns the key."""


class NotFound(TenureError):
    """It does not exist."""


_CLASSES = {
    "tenure_ended": TenureEnded,
    "lease_held": LeaseHeld,
    "claim_held": ClaimHeld,
    "not_found": NotFound,
    "session_not_found": NotFound,
}


def from_problem(status: int, problem: Mapping[str, Any], lost: str) -> TenureError:
    """The error of an answer. Without a code it is not of a daemon, but for example of a proxy.

    `lost`: the outcome of the call if the answer does not tell it.
    """
    code, reason = problem.get("code"), problem.get("reason")
    if not isinstance(code, str) or not isinstance(reason, (str, type(None))):
        code, problem = "unreachable", {}
    outcome = problem.get("outcome")
    if outcome not in (UNCHANGED, UNKNOWN):
        outcome = UNCHANGED if 400 <= status < 500 else lost
    message = str(problem.get("detail") or problem.get("title") or f"no daemon: the answer has the status {status}")
    kind = _CLASSES.get(code, TenureError)
    return kind(message, code=code, status=status, outcome=outcome, problem=problem)


def ended(tenure: str, reason: str | None) -> TenureEnded:
    """The error of an act under a tenure that is known to be over."""
    detail = f"the tenure {tenure} has ended" + (f" ({reason})" if reason else "")
    if reason == FORKED:
        detail = f"the tenure {tenure} belongs to the process that forked this one: join again here"
    return TenureEnded(detail, code="tenure_ended", status=410, problem={"reason": reason})
