//! (in the making)

pub mod batch;
pub mod client;
pub mod connect;
mod error_copy;
pub mod group;
pub mod heart;
#[cfg(feature = "http")]
pub mod http;
pub mod loops;
pub mod member_id;
pub mod membership;
pub mod meters;
mod on_heart;
pub mod registry;
mod store_clock;
pub mod sweeper;
#[cfg(test)]
mod testing;
pub mod why;
pub mod wire;

pub use client::{ClientSettings, Tenure};
pub use connect::{OpenOptions, open_store};
pub use group::GroupHandle;
pub use membership::{JoinOptions, Membership, MembershipStatus, Phase};
pub use registry::Registry;
