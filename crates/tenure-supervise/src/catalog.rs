//! Catalogs: where others find the service. One actor owns the desired state of one registration.
//!
//! [`Catalog::want`] says what shall be, and comes back at once; the actor pursues it for as long as it takes, against an
//! agent that is away, slow, was restarted without its state, or refuses its token. It is never in the way of the child.
//! There is at most one request at a time, and what is not wanted any more is not sent.
//!
//! A registration is written to a journal before it is made and struck out once it is known to be gone, so that whatever
//! ends this process, the next one removes what it left behind.

mod actor;
mod agent;
pub mod consul;
mod failure;
mod hold;
mod journal;
mod leftovers;
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
pub use service::{BadService, MIN_DEREGISTER_AFTER, MIN_TTL, Service};
pub use status::{Phase, Status};

use self::actor::{Actor, Parts};
use self::agent::Agent;
use self::hold::Hold;
use self::journal::Journal;
use crate::survive::{self, Task};

/// The membership of this process, once there is one: a store that is away keeps nobody from starting.
pub type Joined = watch::Receiver<Option<Arc<Membership>>>;

/// What a catalog is made of.
struct Making {
    agent: Arc<dyn Agent>,
    service: Service,
    /// Tells the registrations of this process from those of its predecessors under the same id.
    life: String,
    journal: Option<PathBuf>,
    hold: Option<Hold>,
}

/// What is wanted, and the how many-th wish that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Want {
    registered: bool,
    turn: u64,
}

/// How a flush has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flushed {
    /// The catalog has confirmed that the service is not in it.
    Gone,
    /// It was not confirmed in time, for this reason. The journal has it, and the next start tries again.
    Journalled(String),
    /// It was not confirmed in time, for this reason, and there is no journal: the agent removes it by itself, some time
    /// after its ttl.
    Left(String),
}

/// The registration of one service in one catalog. Dropping it stops the actor and leaves the catalog as it is; call
/// [`Catalog::flush`] first.
#[derive(Debug)]
pub struct Catalog {
    clock: Arc<dyn Clock>,
    want: watch::Sender<Want>,
    status: watch::Receiver<Status>,
    journal: Arc<Journal>,
    place: String,
    id: String,
    life: String,
    _task: Task,
}

impl Catalog {
    /// Starts the actor on the runtime of the caller. The service is not wanted yet.
    fn start(making: Making, clock: &Arc<dyn Clock>) -> Self {
        let Making {
            agent,
            service,
            life,
            journal,
            hold,
        } = making;
        let (want, wanted) = watch::channel(Want {
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
            // What an actor that has panicked knew is not believed.
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
            _task: survive::spawn("catalog", Arc::clone(clock), make, broken),
        }
    }

    /// The agent, in the one spelling of its address.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The id of the service.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What tells the registrations of this process from those of its predecessors under the same id.
    #[must_use]
    pub fn life(&self) -> &str {
        &self.life
    }

    /// The service shall be in the catalog, or shall not be. Comes back at once.
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

    /// Waits until the catalog has confirmed that the service is not in it, after the latest `want(false)`. Never, while
    /// it is wanted.
    pub async fn absent(&self) {
        let mut status = self.status.clone();
        let absent = |status: &Status| {
            let want = *self.want.borrow();
            !want.registered && status.phase == Phase::Absent && status.confirmed == want.turn
        };
        if status.wait_for(absent).await.is_err() {
            // The actor is gone, and nothing is confirmed any more.
            std::future::pending::<()>().await;
        }
    }

    /// How things stand.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// How things stand, and its changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Takes the service out of the catalog, trying again for as long as `bound`, and tells what came of it. The actor
    /// goes on trying after that, for as long as the handle lives.
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

/// No catalog: whatever is wanted is so at once.
#[must_use]
pub fn none(service: Service, clock: &Arc<dyn Clock>) -> Catalog {
    let making = Making {
        agent: Arc::new(agent::Nowhere),
        service,
        life: String::new(),
        journal: None,
        hold: None,
    };
    Catalog::start(making, clock)
}
