//! Membership, ownership and clean-up for fleets of processes.
//!
//! A *tenure* is one continuous period in which a *member* is alive in a *group*. It starts at join, is extended by
//! *beats* (heartbeats), and ends once: the member leaves, lapses, is superseded, or is expelled by an operator. A
//! member holds keys, leases and sessions under its tenure. They are released exactly once after the tenure ends. An
//! ended tenure never comes back.
//!
//! ```
//! use tenure::{JoinOptions, Tenure, Verdict};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tenure::Result<()> {
//! // `sqlite:tenure.db`, `valkey://host` and `http://host:7717` work the same.
//! let tenure = Tenure::connect("memory:").await?;
//! let ingest = tenure.group("ingest")?;
//!
//! // This process now sends heartbeats from its own thread.
//! let membership = ingest.join(JoinOptions::named("ingest-1")?).await?;
//! let devices = membership.registry("devices")?;
//! devices.claim("device-42").await?;
//!
//! // Any client can look up the owner of a key and whether that owner is alive.
//! let claim = devices.look_up("device-42").await?.expect("it was claimed above");
//! assert_eq!(claim.owner.as_str(), "ingest-1");
//! assert!(claim.alive);
//!
//! // Check ownership before acting on it. No I/O.
//! assert_eq!(membership.verdict(), Verdict::Held);
//!
//! // Exclusive work takes a lease. Storage can use its fencing token to reject older holders.
//! let guard = membership.leases().acquire("endpoint-7").await?.granted().expect("the lease is free");
//! assert_eq!(guard.verdict(), Verdict::Held);
//! println!("polling endpoint-7 with token {}", guard.token());
//! guard.release().await?;
//!
//! // Leaving ends the tenure and releases what it held.
//! membership.leave().await?;
//! assert!(!devices.look_up("device-42").await?.is_some_and(|claim| claim.alive));
//!
//! // The history of a member, with reasons.
//! println!("{}", ingest.why("ingest-1").await?);
//! tenure.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Working only while the tenure is held
//!
//! [`Membership::verdict`] has three values. `Held`: a beat was confirmed recently, and no other member can have taken
//! over. `Uncertain`: not confirmed in time; pause. `Lost`: the tenure is over. [`Membership::lost`] is a cancellation
//! token for work to abort on loss:
//!
//! ```
//! use tenure::{Membership, Verdict};
//!
//! async fn work(membership: &Membership) {
//!     let lost = membership.lost();
//!     while !lost.is_cancelled() {
//!         if membership.verdict() == Verdict::Held {
//!             tokio::select! {
//!                 () = one_round() => membership.progress(),
//!                 () = lost.cancelled() => {}
//!             }
//!         } else {
//!             // Wait for a confirmation or the loss.
//!             let mut status = membership.watch();
//!             let _ = status.wait_for(|status| status.verdict != Verdict::Uncertain).await;
//!         }
//!     }
//! }
//! # async fn one_round() {}
//! ```
//!
//! # Failure behaviour
//!
//! | fault | behaviour of a membership |
//! |---|---|
//! | a beat fails or is not answered | warns once and retries sooner; at ttl − margin it is `Uncertain`, at the ttl `Lost` |
//! | the store was down and returns | continues under the same tenure: every ttl restarts after an outage |
//! | the tenure `lapsed`, or the store lost its data | joins again and reclaims keys that have no other owner |
//! | `superseded`: a newer process has the same name | stops and reports it |
//! | `expelled`: an operator ended it | stops and reports it |
//! | the process was suspended | is `Uncertain` until the store confirms the tenure |
//! | the store lost its latest writes (failover to a lagging replica) | notices at the next beat; reclaims keys, and leases are `Uncertain` until re-read |
//! | `lapsed`, or the store lost data | attaches its connections again; a session reaped since is created again and reported |
//! | a lease is lost, for any reason | its [`LeaseGuard`] stays `Lost` and its token is cancelled; acquire again |
//! | a reply is lost | claims are re-read, acquires, attaches and releases are retried; grants without a local holder are released |
//! | user code blocks every thread of its runtime | beats continue; to stop them, set [`JoinOptions::progress_within`] |
//!
//! # Overview
//!
//! [`Tenure`] connects to a store, [`GroupHandle`] reads a group, [`Membership`] is this process in a group. Under a
//! membership, [`Registry`] holds claimed keys, [`Leases`] exclusive work and [`Sessions`] client connections. Every
//! client runs a [`sweeper`] for stores that have none of their own; it runs under [`loops`], which restart it after a
//! failure. [`why`] explains what happened, and [`GroupHandle::follow`] reports it as it happens. Clock, store and
//! runtime are passed in ([`Tenure::on_store`]), so a simulation drives the production code.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod access;
pub mod batch;
pub mod burst;
pub mod client;
pub mod connect;
#[cfg(any(doc, doctest))]
pub mod cookbook;
mod error_copy;
pub mod event;
pub mod fence;
pub mod fleet;
pub mod group;
pub mod heartbeat;
#[cfg(feature = "http")]
pub mod http;
pub mod lease;
pub mod ledger;
pub mod loops;
pub mod member_id;
pub mod membership;
pub mod meters;
pub mod nodes;
mod on_runtime;
pub mod pulse;
pub mod registry;
pub mod roster;
pub mod session;
pub mod sweeper;
#[cfg(test)]
mod testing;
#[cfg(feature = "otel")]
pub mod trace;
#[cfg(not(feature = "otel"))]
#[path = "trace/off.rs"]
mod trace;
pub mod why;
pub mod wire;

pub use access::AccessToken;
pub use client::{ClientSettings, Tenure};
pub use connect::{OpenOptions, open_store};
pub use event::{EventFeed, FeedItem};
pub use fence::{Fence, Fenced};
pub use fleet::{Assignment, Fleet, FleetSettings, TargetList};
pub use group::GroupHandle;
pub use lease::{Acquire, AcquireOptions, LeaseGuard, Leases};
pub use membership::{JoinOptions, Membership, MembershipStatus, Phase};
pub use registry::{LostClaim, Registry};
pub use roster::{Roster, Rosters, RostersSettings};
pub use session::{Attach, Connection, GroupSessions, Sessions};

/// All types, for what has no name at the root: other stores, tests on virtual time ([`core::clock::ManualClock`]).
pub use tenure_core as core;

pub use tenure_core::clock::{Clock, Mono, SystemClock};
pub use tenure_core::error::{Error, ErrorKind, Outcome, Result};
pub use tenure_core::event::{Event, EventId, EventKind, EventPage, EventQuery};
pub use tenure_core::id::{
    Alias, ConnectionId, EngagementId, Group, Key, LeaseName, MemberId, ProviderId, RegistryName, RosterName,
    SessionId, TenureId, Term,
};
pub use tenure_core::lease::{Holders, Lease, LeaseHolder, Place, ReleaseOutcome, Token};
pub use tenure_core::ledger::{
    Engagement, Ledger, Move, NewEngagement, Provider, ProviderSpec, ProviderState, RosterSettings, SettingsPatch,
    Status,
};
pub use tenure_core::membership::{EndBy, EndReason, Labels, Member, Revision};
pub use tenure_core::registry::{Claim, ClaimMode, ClaimOutcome};
pub use tenure_core::session::{
    Data, DeleteOutcome, DetachOutcome, Epoch, How, PatchOutcome, Session, SessionState, SessionStats,
};
pub use tenure_core::store::{Health, Page, PageRequest, Store, StoreOptions};
pub use tenure_core::sweep::{GroupStatus, SweepReport, SweepRequest};
pub use tenure_core::target::{Target, TargetSpec};
pub use tenure_core::time::{StoreTime, parse_duration};
pub use tenure_core::timing::Timing;
pub use tenure_core::verdict::Verdict;
