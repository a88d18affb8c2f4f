//! Stores at scale: over TLS, behind sentinels, in a cluster, under the least user, and with replicas that confirm. What is
//! measured is printed (`--nocapture`); only what must hold is asserted.

mod cluster;
mod load;
mod role;
mod sentinel;
mod tls;
mod wait;
