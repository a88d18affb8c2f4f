//! The driver of the clients' conformance suite for the Rust HTTP client: it turns the commands of
//! `clients/conformance/PROTOCOL.md` into calls of the library.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the protocol is lines on stdout"
)]

mod answer;
mod events;
mod fleet;
mod leases;
mod member;
mod roster;

use std::collections::HashMap;
use std::env;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tenure::connect::OpenOptions;
use tenure::fleet::Fleet;
use tenure::http::{HttpSettings, HttpStore, RemoteRosters};
use tenure::{AccessToken, ClientSettings, GroupHandle, SystemClock, Tenure};
use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;

use answer::{Answered, Command, Refusal};

/// What the operations share.
struct Driver {
    client: Tenure,
    rosters: RemoteRosters,
    made: AtomicU64,
    members: Mutex<HashMap<String, Arc<member::Member>>>,
    leases: Mutex<HashMap<String, Arc<leases::Held>>>,
    followers: Mutex<HashMap<String, AbortHandle>>,
    fleets: Mutex<HashMap<String, Arc<Fleet>>>,
}

fn main() -> anyhow::Result<()> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let driver = Arc::new(runtime.block_on(connect())?);
    for line in io::stdin().lock().lines() {
        let line = line?;
        let Ok(command) = serde_json::from_str::<Value>(&line) else {
            eprintln!("not JSON: {line}");
            continue;
        };
        let driver = Arc::clone(&driver);
        runtime.spawn(async move {
            let command = Command(command);
            let answer = match driver.run(&command).await {
                Ok(ok) => json!({ "id": command.0["id"], "ok": ok }),
                Err(refusal) => json!({ "id": command.0["id"], "error": refusal.0 }),
            };
            write(&answer);
        });
    }
    // Without leaving, as a killed process.
    std::process::exit(0)
}

async fn connect() -> anyhow::Result<Driver> {
    let url = env::var("TENURE_STORE").context("TENURE_STORE is not set")?;
    let token = env::var("TENURE_TOKEN")
        .ok()
        .map(|text| AccessToken::new(&text))
        .transpose()?;
    let options = OpenOptions {
        token: token.clone(),
        ..OpenOptions::default()
    };
    let client = Tenure::connect_with(&url, options, ClientSettings::default()).await?;
    let (clock, runtime) = (SystemClock::shared(), Handle::current());
    let store = HttpStore::with_token(&url, clock, runtime, HttpSettings::default(), token)?;
    Ok(Driver {
        client,
        rosters: RemoteRosters::of(store),
        made: AtomicU64::new(0),
        members: Mutex::default(),
        leases: Mutex::default(),
        followers: Mutex::default(),
        fleets: Mutex::default(),
    })
}

impl Driver {
    async fn run(self: &Arc<Self>, command: &Command) -> Answered {
        match command.text("op")? {
            "join" => self.join(command).await,
            "inherit" => Ok(self.add(self.client.inherit(Duration::ZERO).await?)),
            "members" => self.list_members(command).await,
            "verdict" | "leave" | "labels" | "claim" | "release_claim" | "acquire" | "attach" | "detach" => {
                let member = found(&self.members, command.text("handle")?)?;
                self.act(&member, command).await
            }
            "fleet" => self.fleet(&*found(&self.members, command.text("handle")?)?, command),
            "drain" => self.drain(&*found(&self.members, command.text("handle")?)?).await,
            "owner" => self.owner(command).await,
            "lease" => self.lease(command).await,
            "lease_verdict" | "release" | "work" => {
                let held = found(&self.leases, command.text("lease_handle")?)?;
                held.act(command).await
            }
            "session" => self.session(command).await,
            "sessions" => self.sessions(command).await,
            "patch_session" => self.patch_session(command).await,
            "events" => self.events(command).await,
            "follow" => self.follow(command),
            "unfollow" => {
                if let Some(follower) = locked(&self.followers).remove(command.text("follow")?) {
                    follower.abort();
                }
                Ok(json!({}))
            }
            _ => self.roster(command).await,
        }
    }

    fn group(&self, command: &Command) -> Result<GroupHandle, Refusal> {
        Ok(self.client.group(command.text("group")?)?)
    }

    /// A new name for a handle.
    fn name(&self, kind: &str) -> String {
        format!("{kind}{}", self.made.fetch_add(1, Ordering::Relaxed))
    }
}

fn locked<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn found<T>(table: &Mutex<HashMap<String, Arc<T>>>, handle: &str) -> Result<Arc<T>, Refusal> {
    let found = locked(table).get(handle).cloned();
    found.ok_or_else(|| Refusal::bad_command(&format!("unknown handle {handle:?}")))
}

/// Writes a line to the runner. Without a runner there is nothing left to do.
fn write(line: &Value) {
    let mut out = io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}
