//! Service catalogs, in which clients find the service. One actor owns the desired state of one registration.
//!
//! [`Catalog::want`] sets the desired state and returns immediately. The actor pursues it for as long as it takes,
//! while the agent is unreachable, slow, restarted without its state, or rejects the token. It never blocks the child.
//! It sends at most one request at a time, and nothing that is no longer wanted.
//!
//! A registration is written to a journal before it is made and removed from it once it is confirmed gone. So after any
//! end of this process, the next one removes what it left behind.

mod actor;
mod agent;
pub mod consul;
mod failure;
mod journal;
mod leftovers;
mod registration_session;
mod remove;
mod service;
mod status;
pub mod tenure;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::tenure::Membership;
use tenure_core::clock::{Clock, within};
use tokio::sync::watch;

pub use failure::Failure;
pub use remove::Removed;
pub use service::{InvalidService, MIN_DEREGISTER_AFTER, MIN_TTL, Service};
pub use status::{Phase, Status};

use self::actor::{Actor, Parts};
use self::agent::Agent;
use self::journal::Journal;
use self::registration_session::RegistrationSession;
use crate::restart::{self, Task};

/// The membership of this process, once it is joined: an unreachable store does not delay the start.
pub type MembershipWatch = watch::Receiver<Option<Arc<Membership>>>;

/// The parts of a catalog.
struct CatalogParts {
    agent: Arc<dyn Agent>,
    service: Service,
    /// Identifies the registrations of this process among those of earlier processes with the same id.
    life: String,
    journal: Option<PathBuf>,
    hold: Option<RegistrationSession>,
}

/// The desired state and its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DesiredState {
    registered: bool,
    turn: u64,
}

/// The result of a flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flushed {
    /// The catalog confirmed that the service is not in it.
    Gone,
    /// Not confirmed in time, for this reason. The journal has the registration, and the next start removes it.
    Journalled(String),
    /// Not confirmed in time, for this reason, and there is no journal: the agent removes it some time after its ttl.
    Left(String),
}

/// The registration of one service in one catalog. Dropping it stops the actor and leaves the registration as it is;
/// call [`Catalog::flush`] first.
#[derive(Debug)]
pub struct Catalog {
    clock: Arc<dyn Clock>,
    want: watch::Sender<DesiredState>,
    status: watch::Receiver<Status>,
    journal: Arc<Journal>,
    place: String,
    id: String,
    life: String,
    _task: Task,
}

impl Catalog {
    /// Starts the actor on the caller's runtime. The service is not wanted yet.
    fn start(parts: CatalogParts, clock: &Arc<dyn Clock>) -> Self {
        let CatalogParts {
            agent,
            service,
            life,
            journal,
            hold,
        } = parts;
        let (want, wanted) = watch::channel(DesiredState {
            registered: false,
            turn: 0,
        });
        let (tell, status) = watch::channel(Status::default());
        let journal = Arc::new(Journal::open(journal, Arc::clone(clock)));
        let (place, id) = (agent.place().to_owned(), service.id.clone());
        let mut parts = Parts {
            agent,
            service,
            life: life.clone(),
            journal: Arc::clone(&journal),
            hold: hold.map(Arc::new),
            clock: Arc::clone(clock),
            want: wanted,
            tell: tell.clone(),
            fresh: true,
        };
        let make = move || {
            let actor = Actor::new(parts.clone());
            // The state of a panicked actor is not trusted.
            parts.fresh = false;
            actor.run()
        };
        let broken = move |why: String| tell.send_modify(|status| status.reason = Some(why));
        Self {
            clock: Arc::clone(clock),
            want,
            status,
            journal,
            place,
            id,
            life,
            _task: restart::spawn("catalog", Arc::clone(clock), make, broken),
        }
    }

    /// The canonical address of the agent.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The id of the service.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Identifies the registrations of this process among those of earlier processes with the same id.
    #[must_use]
    pub fn life(&self) -> &str {
        &self.life
    }

    /// Sets whether the service shall be in the catalog. Returns immediately.
    pub fn want(&self, registered: bool) {
        self.want.send_if_modified(|want| {
            let news = want.registered != registered;
            if news {
                want.registered = registered;
                want.turn += 1;
            }
            news
        });
    }

    /// Waits until the catalog has confirmed that the service is not in it, after the latest `want(false)`. Never
    /// completes while the service is wanted.
    pub async fn absent(&self) {
        let mut status = self.status.clone();
        let absent = |status: &Status| {
            let want = *self.want.borrow();
            !want.registered && status.phase == Phase::Absent && status.confirmed == want.turn
        };
        if status.wait_for(absent).await.is_err() {
            // The actor is gone, so nothing can be confirmed.
            std::future::pending::<()>().await;
        }
    }

    /// The current status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// The current status and its changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Removes the service from the catalog and waits at most `bound` for the confirmation. After that, the actor
    /// continues to retry while the handle lives.
    pub async fn flush(&self, bound: Duration) -> Flushed {
        self.want(false);
        if within(&*self.clock, bound, self.absent()).await.is_some() {
            return Flushed::Gone;
        }
        let reason = self.status().to_string();
        if self.journal.holds() {
            Flushed::Journalled(reason)
        } else {
            Flushed::Left(reason)
        }
    }
}

/// No catalog: every desired state is reached immediately.
#[must_use]
pub fn none(service: Service, clock: &Arc<dyn Clock>) -> Catalog {
    let parts = CatalogParts {
        agent: Arc::new(agent::NoCatalog),
        service,
        life: String::new(),
        journal: None,
        hold: None,
    };
    Catalog::start(parts, clock)
}
