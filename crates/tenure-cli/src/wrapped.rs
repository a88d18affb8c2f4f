//! The command that `join` and `lock` wrap: it runs beside a membership until it ends or must be stopped.

use std::ffi::OsString;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustix::process::Signal;
use tenure::membership::Membership;
use tenure_core::clock::Clock;
use tenure_core::supervise::{Evidence, Settings};
use tenure_supervise::catalog::Catalog;
use tenure_supervise::child::{Helpers, Program};
use tenure_supervise::probe::{Probe, Readiness};
use tenure_supervise::process::Processes;
use tenure_supervise::run::{Ended, Supervision};
use tenure_supervise::signals::{SignalAction, Signals};
use tokio::sync::{mpsc, watch};

use crate::connect::Connected;
use crate::exit::FAILED;
use crate::secrets;

/// How long after KILL a process that is still there counts as one that cannot be ended.
const UNKILLABLE: Duration = Duration::from_secs(2);

/// The signal that stops the command: after the grace it is killed. The others are passed on, and it decides.
const STOP: &[Signal] = &[Signal::TERM];

/// The command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wrapped<'a> {
    pub(crate) command: &'a [OsString],
    /// The time between TERM and KILL.
    pub(crate) grace: Duration,
    /// The same before a deadline of the evidence.
    pub(crate) grace_at_deadline: Duration,
    /// Reserved before a deadline for KILL.
    pub(crate) reserve: Duration,
}

impl Wrapped<'_> {
    pub(crate) fn settings(&self) -> Settings {
        let defaults = Settings::default();
        let reserve = self.reserve.min(defaults.reserve);
        Settings {
            stop_budget: self.grace.saturating_add(UNKILLABLE + reserve),
            deregister: Duration::ZERO,
            drain: Duration::ZERO,
            grace: self.grace,
            grace_at_deadline: self.grace_at_deadline,
            reserve,
            ..defaults
        }
    }

    /// Starts the command with these variables, and without the secrets that are ours. Runs it until it ends, a signal or
    /// the evidence stops it, or `over` completes, whose result is returned then.
    ///
    /// On return no process of it is left, unless [`Ended::is_gone`] says otherwise.
    ///
    /// # Errors
    /// When the system refuses a signal handler. Nothing was started then.
    pub(crate) async fn run<T>(
        &self,
        variables: Vec<(OsString, OsString)>,
        evidence: watch::Receiver<Evidence>,
        signals: Signals,
        clock: &Arc<dyn Clock>,
        over: impl Future<Output = T>,
    ) -> anyhow::Result<(Ended, Option<T>)> {
        let (sender, receiver) = mpsc::channel(8);
        signals.forward(STOP, sender.clone());
        let supervision = Supervision {
            processes: Processes::adopting(clock).context("cannot listen to signals")?,
            program: Program {
                command: self.command.to_vec(),
                helpers: Helpers {
                    environment: secrets::withheld(&[]),
                    ..Helpers::of_this_program("launch", "keep")
                },
            },
            variables,
            readiness: Readiness::by(Probe::None),
            settings: self.settings(),
            evidence,
            registration: None::<Catalog>,
            guard: None,
            signals: receiver,
            clock: Arc::clone(clock),
        };
        let status = supervision.status();
        let (runs, over) = (supervision.run(&status), over);
        tokio::pin!(runs, over);
        tokio::select! {
            biased;
            ended = &mut runs => Ok((ended, None)),
            why = &mut over => {
                // Full only while the supervisor ends anyway.
                let _ = sender.try_send(SignalAction::Stop(FAILED));
                Ok((runs.await, Some(why)))
            }
        }
    }

    /// The command's name, for people.
    pub(crate) fn name(&self) -> String {
        self.command[0].to_string_lossy().into_owned()
    }
}

/// The variables that name the tenure.
pub(crate) fn variables(membership: &Membership, connected: &Connected) -> Vec<(OsString, OsString)> {
    let tenure = membership.tenure();
    let mut variables: Vec<(OsString, OsString)> = vec![
        ("TENURE_ID".into(), tenure.to_string().into()),
        ("TENURE_MEMBER".into(), membership.member().as_str().into()),
        ("TENURE_GROUP".into(), membership.group().as_str().into()),
    ];
    let store = secrets::without_password(&connected.url);
    variables.extend(store.map(|url| ("TENURE_STORE".into(), url.into())));
    variables
}

/// The end of a wrapper whose command was not started, because a signal had asked it to end.
pub(crate) async fn ended_before(signals: &mut Signals) -> Option<Ended> {
    tokio::select! {
        biased;
        code = signals.asked_to_end() => Some(Ended { code, is_gone: true }),
        () = ready(()) => None,
    }
}
