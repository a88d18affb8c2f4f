"""What reads return. Fields that a newer daemon adds are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

_T = TypeVar("_T", bound="_Read")


@dataclass(frozen=True)
class _Read:
    @classmethod
    def read(cls: type[_T], answer: Mapping[str, Any]) -> _T:
        return cls(**{known.name: answer[known.name] for known in fields(cls) if known.name in answer})


@dataclass(frozen=True)
class Member(_Read):
    member: str
    tenure: str
    alive: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    ttl_ms: int = 0
    expires_in_ms: int = 0


@dataclass(frozen=True)
class Claim(_Read):
    key: str
    owner: str
    tenure: str
    alive: bool


@dataclass(frozen=True)
class LeaseState(_Read):
    lease: str
    holder: str
    tenure: str
    token: int
    alive: bool
    expires_in_ms: int = 0
    free: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class Session(_Read):
    session: str
    state: str
    connections: int
    epoch: int
    data: Mapping[str, str] = field(default_factory=dict)
    alias: str | None = None
    reap_in_ms: int | None = None


@dataclass(frozen=True)
class Attached(Session):
    outcome: str = ""
    """`created`, `attached` or `resumed`."""


@dataclass(frozen=True)
class Event(_Read):
    id: int
    type: str
    at: str
    data: Mapping[str, Any] = field(default_factory=dict)
    """All fields of the event."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Event:
        return cls(answer["id"], answer["type"], answer["at"], answer)


@dataclass(frozen=True)
class Gap:
    """Events are missing here: the reader fell behind. Read again what was derived from events."""


@dataclass(frozen=True)
class Events:
    items: list[Event]
    next: str
    """Hand it back as `after`."""
    missed: bool
    """Whether events before these are missing."""


@dataclass(frozen=True)
class Target(_Read):
    target: str
    paused: bool
    weight: int
    preferred: str | None = None
    """The member that should work on it. Only the lease decides who does."""
    holder: str | None = None
    tenure: str | None = None
    token: int | None = None
    alive: bool | None = None


@dataclass(frozen=True)
class Provider(_Read):
    provider: str
    online: bool
    alive: bool
    active: bool = True
    occupancy: int = 0
    capacity: int = 0
    display_name: str | None = None


@dataclass(frozen=True)
class Engagement(_Read):
    engagement: str
    status: str
    provider: str | None = None
