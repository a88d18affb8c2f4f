//! A node: a program that runs only while this node is the primary, with everything it needs, from start to end.

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
use crate::catalog::{self, Catalog, MembershipWatch, Service};
use crate::child::Program;
use crate::json_file;
use crate::leadership::{LeadershipHandle, LeadershipSettings};
use crate::member::Member;
use crate::probe::{Probe, Readiness};
use crate::process::Processes;
use crate::run::{LeaderGuard, Supervision};
use crate::signals::{STOPS_SERVICE, SignalAction, Signals};
use crate::status::listen;

pub use crate::member::{Connect, JoinSettings};

/// The exit code when the store can never be joined or the membership has ended for good.
const FAILED: u8 = 1;

/// How long the last status may take to be written.
const LAST_STATUS: Duration = Duration::from_millis(200);

/// The parts of a node.
#[derive(Debug)]
pub struct Node {
    /// The local clock.
    pub clock: Arc<dyn Clock>,
    /// What makes this node the primary.
    pub leadership: LeadershipSettings,
    /// The membership, if a store is used.
    pub joining: Option<JoinSettings>,
    /// Whether the node ends when the store cannot be used. Otherwise it runs without it.
    pub needs_store: bool,
    /// Whether leadership depends on the store.
    pub has_lease: bool,
    /// The service to register while the program serves, and the catalog.
    pub registration: Option<(Service, Registrar)>,
    /// The agents at which this node removes registrations that killed supervisors of its group left behind.
    pub agents: Option<RemoteAgents>,
    /// The program to run.
    pub program: Program,
    /// Its environment variables.
    pub variables: Vec<(OsString, OsString)>,
    /// The readiness probe.
    pub probe: Probe,
    /// When the program starts and stops.
    pub settings: Settings,
    /// The path of the status file, if one is written.
    pub status_file: Option<PathBuf>,
    /// The address that serves the status over HTTP.
    pub status_listen: Option<String>,
}

/// The catalog of a service.
#[derive(Debug)]
pub enum Registrar {
    /// The registry `services` of the group.
    Tenure,
    /// A Consul agent.
    Consul(ConsulSettings),
}

/// Why a node did not start.
#[derive(Debug)]
pub enum StartError {
    /// The settings cannot work.
    Refused(Error),
    /// The service cannot be registered with these settings.
    Catalog(Error),
    /// The status address cannot be bound.
    StatusListen(io::Error),
    /// The system refused a resource.
    System(io::Error),
}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Node {
    /// Runs the program whenever this node is the primary, until a signal or the program's end. Returns the exit code.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn run(mut self) -> std::result::Result<u8, StartError> {
        let (sender, signals) = mpsc::channel(8);
        let heard = Signals::listen().map_err(StartError::System)?;
        heard.forward(STOPS_SERVICE, sender.clone());
        let clock = Arc::clone(&self.clock);
        let (tell, evidence) = watch::channel(Evidence::Uncertain("no evidence yet".to_owned()));
        let group = self.joining.as_ref().map(|joining| joining.group.clone());
        let member = self.join(&tell, sender).await?;
        let joined = member.as_ref().map(Member::joined);
        let catalog = self.registration.take();
        let catalog = catalog.map(|(service, registrar)| registrar.open(service, joined.clone(), &clock));
        let catalog = catalog.transpose().map_err(StartError::Catalog)?;
        let janitor = self.agents.take().zip(member.as_ref()).zip(group);
        let _janitor = janitor.map(|((agents, member), group)| clear_away(agents, member, group, &clock));
        let handle = self.leadership.start(&clock, joined, tell)?;
        let guard: Arc<dyn LeaderGuard> = Arc::<LeadershipHandle>::clone(&handle);
        let supervision = Supervision {
            processes: Processes::adopting(&clock).map_err(StartError::System)?,
            program: self.program,
            variables: self.variables,
            readiness: Readiness::by(self.probe),
            settings: self.settings,
            evidence,
            registration: catalog,
            guard: Some(guard),
            signals,
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
        let keeper = self
            .status_file
            .map(|path| tokio::spawn(json_file::keep(path, status.subscribe())));
        let ended = supervision.run(&status).await;
        handle.end(ended.is_gone).await;
        if let Some(member) = &member {
            member.end(ended.is_gone, &*clock).await;
        }
        // Wait until the last status is written.
        drop(status);
        drop(server);
        if let Some(keeper) = keeper {
            let _ = within(&*clock, LAST_STATUS, keeper).await;
        }
        Ok(ended.code)
    }

    /// Joins, if the store is used. When the membership cannot be joined or has ended for good, a node that needs the
    /// store ends; any other node continues.
    ///
    /// # Errors
    /// `Invalid` for an invalid store URL.
    async fn join(
        &mut self,
        tell: &watch::Sender<Evidence>,
        sender: mpsc::Sender<SignalAction>,
    ) -> Result<Option<Member>> {
        let Some(joining) = self.joining.take() else {
            return Ok(None);
        };
        // Only a lease makes leadership depend on the store.
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
                // The reason was logged; another attempt would fail the same way.
                let _ = sender.send(SignalAction::Stop(FAILED)).await;
            });
        }
        Ok(Some(member))
    }
}

impl Registrar {
    /// Starts the actor that keeps the service registered, on the caller's runtime.
    fn open(self, service: Service, joined: Option<MembershipWatch>, clock: &Arc<dyn Clock>) -> Result<Catalog> {
        match (self, joined) {
            (Self::Tenure, None) => Err(Error::invalid("the catalog `tenure` needs --store")),
            (Self::Tenure, Some(joined)) => catalog::tenure::catalog(joined, service, clock),
            (Self::Consul(settings), Some(joined)) => consul::held_catalog(settings, service, joined, clock),
            (Self::Consul(settings), None) => consul::catalog(settings, service, clock),
        }
    }
}

/// Removes registrations that killed supervisors of the group left in Consul. Stops when the result is dropped.
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
                "the janitor for registrations could not be started"
            );
        }
    });
    loops
}
