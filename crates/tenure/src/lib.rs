//! Who is alive, who owns what, and what must be cleaned up because its owner died.
//!
//! A *tenure* is one continuous stretch of a *member* being alive in a *group*. It begins at join, is extended by
//! *beats*, and ends once: by leaving, by lapsing, by being superseded, or by an operator. Whatever a member holds, it
//! holds under its tenure, and is released exactly once after that tenure ends. An ended tenure never comes back.
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
//! // From here on this process beats, on a thread of its own.
//! let membership = ingest.join(JoinOptions::named("ingest-1")?).await?;
//! let devices = membership.registry("devices")?;
//! devices.claim("device-42").await?;
//!
//! // Anybody can ask who owns a key, and whether that owner is alive now.
//! let claim = devices.look_up("device-42").await?.expect("it was claimed above");
//! assert_eq!(claim.owner.as_str(), "ingest-1");
//! assert!(claim.alive);
//!
//! // Before acting as an owner, ask whether we still are one. No I/O.
//! assert_eq!(membership.verdict(), Verdict::Held);
//!
//! // Work that only one may do has a lease, and a token that a sink can tell an older holder by.
//! let guard = membership.leases().acquire("endpoint-7").await?.granted().expect("nobody else is here");
//! assert_eq!(guard.verdict(), Verdict::Held);
//! println!("polling endpoint-7 with token {}", guard.token());
//! guard.release().await?;
//!
//! // Leaving is how a membership ends well; what it held is released.
//! membership.leave().await?;
//! assert!(!devices.look_up("device-42").await?.is_some_and(|claim| claim.alive));
//!
//! // What happened, when, and why.
//! println!("{}", ingest.why("ingest-1").await?);
//! tenure.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Working only while it is ours
//!
//! [`Membership::verdict`] has three values. `Held`: a beat was confirmed recently enough, nobody else can have taken
//! over. `Uncertain`: not confirmed in time; pause. `Lost`: over. [`Membership::lost`] is a token for work that should be
//! dropped then:
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
//!             // Wait for a confirmation, or for the end.
//!             let mut status = membership.watch();
//!             let _ = status.wait_for(|status| status.verdict != Verdict::Uncertain).await;
//!         }
//!     }
//! }
//! # async fn one_round() {}
//! ```
//!
//! # When things go wrong
//!
//! | what happens | what a membership does |
//! |---|---|
//! | a beat fails, or is not answered | warns once, tries again sooner; at ttl − margin it is `Uncertain`, at the ttl `Lost` |
//! | the store was away and is back | goes on under the same tenure: everyone gets one full ttl after an outage |
//! | the tenure `lapsed`, or the store's data is gone | joins again, and claims again what nobody else owns by now |
//! | `superseded`: a newer process has the same name | stops and says so |
//! | `expelled`: an operator ended it | stops and says so |
//! | the process was suspended | doubts everything until the store has confirmed it |
//! | the end of the store's data is gone (failover to a replica that lagged) | sees it at the next beat; claims again, and its leases are `Uncertain` until they were read back |
//! | `lapsed`, data gone, or its end gone | attaches its connections again; one whose session was reaped meanwhile makes it anew and says so |
//! | a lease is lost, for any reason | its [`LeaseGuard`] is `Lost` for ever and its token is cancelled; acquire again |
//! | a reply is lost | a claim is read back, a lease or a connection is asked for again, a release is sent again; what nobody here knows of is given back |
//! | user code blocks every thread of its runtime | beats go on; set [`JoinOptions::progress_within`] if they should not |
//!
//! # What is where
//!
//! [`Tenure`] connects, [`GroupHandle`] looks at a group, [`Membership`] is this process in it, [`Registry`] is what it
//! owns, [`Leases`] what it alone works on, [`Sessions`] whose connections it serves. Stores that are swept by their users
//! are swept by the [`sweeper`] of every client, all at once; it runs under [`loops`], which survive what goes wrong in
//! them. [`why`] explains. Everything takes its time, its store and its runtime from whoever makes it
//! ([`Tenure::on_store`]), so a simulation drives the same code as a program.

pub mod access;
pub mod batch;
pub mod client;
pub mod connect;
#[cfg(any(doc, doctest))]
pub mod cookbook;
pub mod crowd;
mod error_copy;
pub mod fence;
pub mod fleet;
pub mod group;
pub mod heart;
#[cfg(feature = "http")]
pub mod http;
pub mod lease;
pub mod ledger;
pub mod loops;
pub mod member_id;
pub mod membership;
pub mod meters;
pub mod nodes;
mod on_heart;
pub mod registry;
pub mod roster;
pub mod session;
pub mod sweeper;
#[cfg(test)]
mod testing;
pub mod why;
pub mod wire;

pub use access::AccessToken;
pub use client::{ClientSettings, Tenure};
pub use connect::{OpenOptions, open_store};
pub use fence::{Fence, Fenced};
pub use fleet::{Assignment, Fleet, FleetSettings, TargetList};
pub use group::GroupHandle;
pub use lease::{Acquire, LeaseGuard, Leases};
pub use membership::{JoinOptions, Membership, MembershipStatus, Phase};
pub use registry::{LostClaim, Registry};
pub use roster::{Roster, Rosters, RostersSettings};
pub use session::{Attach, Connection, GroupSessions, Sessions};

pub use tenure_core::clock::{Clock, Mono, SystemClock};
pub use tenure_core::error::{Error, ErrorKind, Outcome, Result};
pub use tenure_core::event::{Event, EventId, EventKind, EventPage, EventQuery};
pub use tenure_core::id::{
    Alias, ConnectionId, EngagementId, Group, Key, LeaseName, MemberId, ProviderId, RegistryName, RosterName,
    SessionId, TenureId, Term,
};
pub use tenure_core::lease::{Lease, ReleaseOutcome, Token};
pub use tenure_core::membership::{EndReason, Labels, Member};
pub use tenure_core::registry::{Claim, ClaimMode, ClaimOutcome};
pub use tenure_core::session::{
    Data, DeleteOutcome, DetachOutcome, Epoch, How, PatchOutcome, Session, SessionState, SessionStats,
};
pub use tenure_core::store::{Page, PageRequest, Store, StoreOptions};
pub use tenure_core::sweep::{GroupStatus, SweepReport, SweepRequest};
pub use tenure_core::time::StoreTime;
pub use tenure_core::timing::Timing;
pub use tenure_core::verdict::Verdict;
