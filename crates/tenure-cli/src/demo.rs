//! `tenure demo`: a fleet of processes that fail and recover, with a commentary.
//!
//! Nothing is simulated: the daemon is `tenure serve` on a temporary file, the members are processes of this program that use
//! the library ([`part`]), and real signals kill them. The commentary reports what events, registries, ledger and endpoints
//! show, never what the script expects.

mod acts;
mod endpoints;
mod fleet;
mod part;
mod story;
mod watch;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::json;
use tenure::{ClientSettings, OpenOptions, PageRequest, Tenure};
use tenure_core::id::Group;
use tenure_supervise::signals::Signals;

use crate::connect;
use crate::exit::{DONE, FAILED, Usage};
use acts::Act;
use fleet::{Fleet, TARGETS};
use story::Story;

pub(crate) use part::Part;

/// The pause between two acts.
const REST: Duration = Duration::from_secs(4);
/// Time-out for an answer of the daemon; longer than a short stall.
const ANSWER: Duration = Duration::from_secs(3);
/// Time-out for the start of the fleet.
const UP: Duration = Duration::from_secs(30);
/// The interval at which its start is checked.
const LOOK: Duration = Duration::from_millis(100);

/// Runs a fleet that fails and recovers on a dashboard.
///
/// It starts a daemon on a temporary file and about a dozen processes: gateways that own devices, nodes that poll endpoints,
/// chat front-ends, providers of a roster. Then it kills, drains, pauses and replaces some of them. For each act it prints
/// what it does, what to expect, and what happened. A round takes about a minute; rounds repeat until Ctrl-C. Nothing has to
/// be installed, and nothing is left behind.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  tenure demo                 watch the dashboard at the address that it prints\n  \
                        tenure demo --once --fast   one round without pauses; 1 if a promise was not seen"
)]
pub(crate) struct Demo {
    /// The address of its daemon; default: a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Play the acts without pauses.
    #[arg(long)]
    fast: bool,
    /// Play one round (exit 1 if an expectation was not met).
    #[arg(long)]
    once: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        if !self.listen.ip().is_loopback() {
            let message = format!(
                "--listen: {} is reachable from other machines, and the demo daemon has no authentication; use 127.0.0.1",
                self.listen
            );
            return Err(Usage::new(message).into());
        }
        // Processes that the demo kills cause errors in their clients.
        crate::logging::start_quiet("off")?;
        connect::block_on(self.perform())
    }

    async fn perform(self) -> anyhow::Result<u8> {
        let mut signals = Signals::listen().context("cannot listen to signals")?;
        let mut story = Story::new(self.json);
        let mut fleet = Fleet::open(self.listen).await?;
        let played = tokio::select! {
            played = self.play(&mut fleet, &mut story) => played,
            _ = signals.asked_to_end() => Ok(()),
        };
        let closed = fleet.close().await;
        played.and(closed)?;
        let missing = story.missing();
        let text = match missing {
            0 => "\nThe end. Every expectation was met, and nothing is left behind.".to_owned(),
            _ => format!("\nThe end. {missing} expectations were not met."),
        };
        story.tell(&text, &json!({ "type": "closed", "missing": missing }))?;
        Ok(if missing > 0 { FAILED } else { DONE })
    }

    async fn play(&self, fleet: &mut Fleet, story: &mut Story) -> anyhow::Result<()> {
        self.welcome(fleet, story)?;
        fleet.populate().await?;
        wait_until_up(fleet).await?;
        story.tell(
            "The fleet is up: 3 gateways with 12 devices, 3 nodes that poll 12 endpoints, 2 front-ends with 4 clients,\n\
             3 providers, and 12 members on 2 hosts.",
            &json!({ "type": "up", "processes": fleet.pids() }),
        )?;
        loop {
            for act in Act::ALL {
                if !self.fast {
                    fleet.clock.sleep(REST).await;
                }
                act.play(fleet, story).await?;
            }
            if self.once {
                return Ok(());
            }
            if self.fast {
                fleet.clock.sleep(LOOK).await;
            }
        }
    }

    fn welcome(&self, fleet: &Fleet, story: &Story) -> anyhow::Result<()> {
        let (url, directory) = (fleet.url(), fleet.directory());
        let how = if self.once {
            "one round"
        } else {
            "round after round, until Ctrl-C"
        };
        let text = format!(
            "A daemon runs at {url}/, with a dashboard; watch it during the demo ({how}).\n\
             Or ask it:  tenure members --store {url} --group ingest      tenure claims --group ingest --registry devices\n\
             \x20           tenure leases --store {url} --group pollers     tenure events --follow --group chat\n\
             The groups are ingest, pollers, chat, swarm, and the roster desk. Every ttl is 3s. Starting the fleet …"
        );
        story.tell(
            &text,
            &json!({ "type": "opened", "url": url, "directory": directory, "daemon": fleet.daemon.pid() }),
        )
    }
}

/// Connects to the daemon of the demo.
async fn connected(url: &str) -> tenure::Result<Tenure> {
    let options = OpenOptions {
        request_timeout: Some(ANSWER),
        ..OpenOptions::default()
    };
    Tenure::connect_with(url, options, ClientSettings::default()).await
}

/// Waits until every endpoint has its node.
async fn wait_until_up(fleet: &Fleet) -> anyhow::Result<()> {
    let group = Group::new(part::POLLERS)?;
    let give_up = fleet.clock.mono() + UP;
    while fleet.clock.mono() < give_up {
        let page = fleet
            .tenure
            .store()
            .leases(&group, None, &PageRequest::default())
            .await?;
        if page.items.len() == TARGETS && page.items.iter().all(|lease| lease.alive) {
            return Ok(());
        }
        fleet.clock.sleep(LOOK).await;
    }
    anyhow::bail!("the fleet did not come up: {} endpoints are not polled", TARGETS)
}
