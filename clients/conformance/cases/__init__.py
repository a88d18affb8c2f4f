"""The cases, one module for each subject."""

from . import answers, claims, errors, events, leases, membership, outages, rosters, sessions, waiting  # noqa: F401
