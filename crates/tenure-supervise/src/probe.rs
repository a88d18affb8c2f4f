//! Is the child ready to serve? Only then may others find it.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tenure_core::clock::{Clock, within};
use tokio::net::TcpStream;

use crate::child::Helpers;
use crate::http;
use crate::process::Processes;

/// How to tell.
#[derive(Debug, Clone)]
pub enum Probe {
    /// It is ready as soon as it runs.
    None,
    /// It is ready after this long.
    Delay(Duration),
    /// It is ready when it accepts connections here (`host:port`).
    Tcp(String),
    /// It is ready when it answers here with a status of 200 to 399.
    Http(String),
    /// It is ready when this command ends with 0.
    Command(Vec<OsString>),
}

/// A probe, and how often and how patiently it asks.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// How to tell.
    pub probe: Probe,
    /// The pause between two tries.
    pub interval: Duration,
    /// How long one try may take.
    pub timeout: Duration,
}

impl Readiness {
    /// With the usual patience: four tries a second, each of at most a second.
    #[must_use]
    pub const fn by(probe: Probe) -> Self {
        Self {
            probe,
            interval: Duration::from_millis(250),
            timeout: Duration::from_secs(1),
        }
    }

    /// Waits until the child is ready, however long that takes. May be dropped at any time.
    pub async fn ready(&self, processes: &Processes, helpers: &Helpers, clock: &dyn Clock) {
        match &self.probe {
            Probe::None => return,
            Probe::Delay(delay) => return clock.sleep(*delay).await,
            Probe::Tcp(_) | Probe::Http(_) | Probe::Command(_) => {}
        }
        let mut last = None;
        loop {
            let attempt = self.attempt(processes, helpers);
            let why = match within(clock, self.timeout, attempt).await {
                Some(Ok(())) => return,
                Some(Err(why)) => why,
                None => format!("no answer in {:?}", self.timeout),
            };
            // Said once for each reason: a slow start is no flood of lines.
            if last.as_ref() != Some(&why) {
                tracing::info!(why, "the child is not ready yet");
                last = Some(why);
            }
            clock.sleep(self.interval).await;
        }
    }

    async fn attempt(&self, processes: &Processes, helpers: &Helpers) -> Result<(), String> {
        match &self.probe {
            Probe::None | Probe::Delay(_) => Ok(()),
            Probe::Tcp(address) => {
                let connected = TcpStream::connect(address).await;
                connected.map(drop).map_err(|error| format!("{address}: {error}"))
            }
            Probe::Http(url) => {
                let client = http::client(None)?.build().map_err(|error| http::chain(&error))?;
                let answer = client.get(url).send().await;
                let status = answer.map_err(|error| http::chain(&error))?.status();
                if status.is_success() || status.is_redirection() {
                    Ok(())
                } else {
                    Err(format!("{url} answers {status}"))
                }
            }
            Probe::Command(command) => run(command, processes, helpers).await,
        }
    }
}

async fn run(command: &[OsString], processes: &Processes, helpers: &Helpers) -> Result<(), String> {
    let started = processes.spawn(helpers.launch(command)).await;
    let mut started = started.map_err(|error| error.to_string())?;
    let group = Group(started.pid);
    let code = started.code().await;
    drop(group);
    if code == 0 {
        Ok(())
    } else {
        Err(format!("the probe ends with {code}"))
    }
}

/// A probe that takes too long is killed, with what it has started.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}
