"""What reads return. Fields that a newer daemon adds are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

_T = TypeVar("_T", bound="_Read")
# What JSON has for the types of fields.
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str,),
    "int": (int,),
    "int | None": (int,),
    "bool": (bool,),
    "bool | None": (bool,),
    "Mapping[str, str]": (dict,),
    "Mapping[str, Any]": (dict,),
}


@dataclass(frozen=True)
class _Read:
    @classmethod
    def read(cls: type[_T], answer: Mapping[str, Any]) -> _T:
        """Raises a TypeError for an answer of another shape."""
        # An optional field may be null.
        given = {known: answer[known.name] for known in fields(cls) if answer.get(known.name) is not None}
        for known, value in given.items():
            if type(value) not in _TYPES[str(known.type)]:
                raise TypeError(f"{known.name} is {value!r:.40}")
        return cls(**{known.name: value for known, value in given.items()})


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
class LostClaim:
    """A key that another member owns now."""

    registry: str
    key: str
    to: str
    """The member, or its tenure."""


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
        return cls.read({**answer, "data": dict(answer)})


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
