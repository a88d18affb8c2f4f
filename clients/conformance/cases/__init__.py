"""The cases, one module for each subject."""

from . import answers, claims, errors, events, fleets, leases, membership, outages, rosters, sessions, waiting, wrapper  # noqa: F401
