//! Stores at scale: over TLS, behind sentinels, in a cluster, for the least user, and with confirmation by replicas.
//! Measurements are printed (`--nocapture`); only requirements are asserted.

mod cluster;
mod load;
mod moving;
mod role;
mod sentinel;
mod tls;
mod wait;
