//! A node: a program that runs only where it is the primary, with everything beside it, from start to end.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure::loops::Loops;
use tenure_core::clock::{Clock, within};
use tenure_core::error::{Error, Result};
use tenure_core::id::Group;
use tenure_core::supervise::{Evidence, Settings};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::catalog::consul::{self, ConsulSettings, Janitor, RemoteAgents};
use crate::catalog::{self, Catalog, Joined, Service};
use crate::child::Program;
use crate::leadership::{Following, Standing};
use crate::member::Member;
use crate::probe::{Probe, Readiness};
use crate::process::Processes;
use crate::run::{Seat, Supervision};
use crate::signals::{Signals, Wish};
use crate::status::{keep_file, listen};

pub use crate::member::{Connect, Joining};

/// The exit code of a supervisor whose store can never be joined, or is over for good.
const FAILED: u8 = 1;

/// A node.
#[derive(Debug)]
pub struct Node {
    /// Local time.
    pub clock: Arc<dyn Clock>,
    /// What makes it the primary.
    pub following: Following,
    /// The membership, where a store is used.
    pub joining: Option<Joining>,
    /// Whether it is nothing without the store. Otherwise it goes on when the store cannot be had.
    pub needs_store: bool,
    /// Whether who leads depends on the store.
    pub has_lease: bool,
    /// What is registered while the program serves, and where.
    pub registration: Option<(Service, Registrar)>,
    /// At which agents it clears away what killed supervisors of its group have left.
    pub agents: Option<RemoteAgents>,
    /// What to run.
    pub program: Program,
    /// Variables for it.
    pub variables: Vec<(OsString, OsString)>,
    /// How to tell that it is ready.
    pub probe: Probe,
    /// When it starts and stops.
    pub settings: Settings,
    /// Where the status is kept.
    pub status_file: PathBuf,
    /// Where the status is answered over HTTP.
    pub status_listen: Option<String>,
}

/// Where a service is registered.
#[derive(Debug)]
pub enum Registrar {
    /// In the registry `services` of the group.
    Tenure,
    /// At an agent of Consul.
    Consul(ConsulSettings),
}

/// Why a node did not start.
#[derive(Debug)]
pub enum StartError {
    /// Its settings cannot work.
    Refused(Error),
    /// Its service cannot be registered like this.
    Catalog(Error),
    /// It cannot listen where its status is to be answered.
    StatusListen(io::Error),
    /// The system refused something.
    System(io::Error),
}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Node {
    /// Runs the program wherever and whenever this node is the primary, until it is over or a signal ends it. Answers the
    /// exit code.
    ///
    /// # Errors
    /// As told by [`StartError`].
    pub async fn run(mut self) -> std::result::Result<u8, StartError> {
        let (wish, wishes) = mpsc::channel(8);
        Signals::listen().map_err(StartError::System)?.forward(wish.clone());
        let clock = Arc::clone(&self.clock);
        let (tell, evidence) = watch::channel(Evidence::Uncertain("nothing was heard yet".to_owned()));
        let group = self.joining.as_ref().map(|joining| joining.group.clone());
        let member = self.join(&tell, wish).await?;
        let joined = member.as_ref().map(Member::joined);
        let catalog = self.registration.take();
        let catalog = catalog.map(|(service, registrar)| registrar.open(service, joined.clone(), &clock));
        let catalog = catalog.transpose().map_err(StartError::Catalog)?;
        let janitor = self.agents.take().zip(member.as_ref()).zip(group);
        let _janitor = janitor.map(|((agents, member), group)| clear_away(agents, member, group, &clock));
        let standing = self.following.start(&clock, joined, tell)?;
        let seat: Arc<dyn Seat> = Arc::<Standing>::clone(&standing);
        let supervision = Supervision {
            processes: Processes::adopting(&clock).map_err(StartError::System)?,
            program: self.program,
            variables: self.variables,
            readiness: Readiness::by(self.probe),
            settings: self.settings,
            evidence,
            registration: catalog,
            seat: Some(seat),
            wishes,
            clock: Arc::clone(&clock),
        };
        let status = supervision.status();
        let server = match &self.status_listen {
            Some(address) => {
                let listening = listen(address, status.subscribe(), Arc::clone(&clock)).await;
                Some(listening.map_err(StartError::StatusListen)?)
            }
            None => None,
        };
        let keeper = tokio::spawn(keep_file(self.status_file, status.subscribe()));
        let ended = supervision.run(&status).await;
        standing.end(ended.is_gone).await;
        if let Some(member) = &member {
            member.end(ended.is_gone, &*clock).await;
        }
        // The last word is written before we go.
        drop(status);
        drop(server);
        let _ = within(&*clock, Duration::from_secs(1), keeper).await;
        Ok(ended.code)
    }

    /// Joins, where the store is used. A membership that cannot be had, or is over for good, ends a supervisor that is
    /// nothing without it; where it only makes the end of a killed one known sooner, the program goes on.
    ///
    /// # Errors
    /// `Invalid` for what names no store.
    async fn join(&mut self, tell: &watch::Sender<Evidence>, wish: mpsc::Sender<Wish>) -> Result<Option<Member>> {
        let Some(joining) = self.joining.take() else {
            return Ok(None);
        };
        // Only a lease makes who leads depend on the store.
        let doubts = self.has_lease.then(|| tell.clone());
        let doubt = move |why| {
            if let Some(tell) = &doubts {
                tell.send_replace(Evidence::Uncertain(why));
            }
        };
        let member = joining.start(&self.clock, doubt).await?;
        if self.needs_store {
            let over = member.over();
            tokio::spawn(async move {
                over.await;
                // It was said why; the same would be said for ever.
                let _ = wish.send(Wish::End(FAILED)).await;
            });
        }
        Ok(Some(member))
    }
}

impl Registrar {
    /// The actor that keeps the service registered, on the runtime of the caller.
    fn open(self, service: Service, joined: Option<Joined>, clock: &Arc<dyn Clock>) -> Result<Catalog> {
        match (self, joined) {
            (Self::Tenure, None) => Err(Error::invalid("tenure: there is no --store")),
            (Self::Tenure, Some(joined)) => catalog::tenure::catalog(joined, service, clock),
            (Self::Consul(settings), Some(joined)) => consul::held_catalog(settings, service, joined, clock),
            (Self::Consul(settings), None) => consul::catalog(settings, service, clock),
        }
    }
}

/// Clears away what killed supervisors of the group have left in Consul, for as long as the answer is held.
fn clear_away(agents: RemoteAgents, member: &Member, group: Group, clock: &Arc<dyn Clock>) -> Loops {
    let loops = Loops::new(Arc::clone(clock), Handle::current());
    let (store, its, clock) = (member.store(), loops.clone(), Arc::clone(clock));
    tokio::spawn(async move {
        let Some(store) = store.await else { return };
        let groups = vec![group];
        let make = move || Janitor::new(Arc::clone(&store), groups.clone(), agents.clone(), Arc::clone(&clock));
        if let Err(error) = its.start(Janitor::settings(), make) {
            tracing::error!(
                error = error.chain(),
                "no janitor for registrations runs in this process"
            );
        }
    });
    loops
}
