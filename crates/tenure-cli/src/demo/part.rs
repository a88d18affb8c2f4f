//! The processes of the simulated fleet. Each is a small program of the kind that Tenure is for, written as one would write
//! it: it connects, joins, and does its work under its membership.

mod front;
mod gateway;
mod phone;
mod poller;
mod swarm;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use tenure::{JoinOptions, Membership, Tenure};
use tenure_core::time::parse_duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::connect;
use crate::exit::{DONE, say};

/// The groups of the fleet, and the names in them.
pub(super) const INGEST: &str = "ingest";
pub(super) const DEVICES: &str = "devices";
pub(super) const POLLERS: &str = "pollers";
pub(super) const CHAT: &str = "chat";
pub(super) const SWARM: &str = "swarm";
pub(super) const NESTS: &str = "nests";
pub(super) const DESK: &str = "desk";

/// One process of the fleet (used by `demo`).
#[derive(Debug, Clone, Args)]
pub(crate) struct Part {
    /// The role of the process.
    #[arg(long, value_enum)]
    role: Role,
    /// The name of the process.
    #[arg(long)]
    name: String,
    /// The daemon.
    #[arg(long)]
    store: String,
    /// The ttl.
    #[arg(long, value_parser = parse_duration)]
    ttl: Duration,
    /// The address of the endpoints of a poller.
    #[arg(long)]
    endpoints: Option<SocketAddr>,
    /// The number of members of a swarm.
    #[arg(long, default_value_t = 1)]
    members: usize,
}

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Role {
    Gateway,
    Poller,
    Front,
    Phone,
    Swarm,
}

impl Role {
    /// The name on the command line.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Poller => "poller",
            Self::Front => "front",
            Self::Phone => "phone",
            Self::Swarm => "swarm",
        }
    }
}

impl Part {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        crate::logging::start_quiet("warn")?;
        connect::block_on(async {
            let term = signal(SignalKind::terminate()).context("cannot listen to signals")?;
            let tenure = super::connected(&self.store).await?;
            self.work(&tenure, term).await?;
            tenure.close().await;
            Ok(DONE)
        })
    }

    async fn work(&self, tenure: &Tenure, term: Signal) -> anyhow::Result<()> {
        match self.role {
            Role::Gateway => gateway::run(self.join(tenure, INGEST).await?, term).await,
            Role::Poller => {
                let endpoints = self.endpoints.context("a poller needs --endpoints")?;
                poller::run(self.join(tenure, POLLERS).await?, endpoints, term).await
            }
            Role::Front => front::run(self.join(tenure, CHAT).await?, term).await,
            Role::Phone => phone::run(&self.store, &self.name, self.ttl, term).await,
            Role::Swarm => swarm::run(tenure, &self.name, self.members, self.ttl, term).await,
        }
    }

    async fn join(&self, tenure: &Tenure, group: &str) -> tenure::Result<Membership> {
        let options = JoinOptions {
            ttl: self.ttl,
            ..JoinOptions::named(&self.name)?
        };
        tenure.group(group)?.join(options).await
    }
}

/// Waits until this process must end. True: it should leave. False: its membership has ended for good, because another
/// process took its name or an operator expelled it.
async fn asked_to_leave(membership: &Membership, term: &mut Signal) -> bool {
    tokio::select! {
        _ = term.recv() => true,
        reason = membership.ended() => {
            let reason = reason.map_or_else(|error| error.chain(), |reason| reason.as_str().to_owned());
            say(format_args!("{} is over: {reason}", membership.tenure()));
            false
        }
    }
}
