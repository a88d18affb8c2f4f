//! Leases of a membership over a store that misbehaves on request.
