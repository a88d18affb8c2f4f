//! Readiness probes. The service is registered only once the child is ready.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Pid;
use tenure_core::clock::{Clock, within};
use tokio::net::TcpStream;

use crate::child::Helpers;
use crate::http;
use crate::process::Processes;

/// The kind of probe.
#[derive(Debug, Clone)]
pub enum Probe {
    /// Ready as soon as the child runs.
    None,
    /// Ready after this long.
    Delay(Duration),
    /// Ready when this address (`host:port`) accepts connections.
    Tcp(String),
    /// Ready when this URL returns a status from 200 to 399.
    Http(String),
    /// Ready when this command exits with 0.
    Command(Vec<OsString>),
}

/// A probe, with its interval and timeout.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// The kind of probe.
    pub probe: Probe,
    /// The pause between two attempts.
    pub interval: Duration,
    /// The timeout of one attempt.
    pub timeout: Duration,
}

impl Readiness {
    /// The defaults: an attempt every 250 ms, each of at most 1 s.
    #[must_use]
    pub const fn by(probe: Probe) -> Self {
        Self {
            probe,
            interval: Duration::from_millis(250),
            timeout: Duration::from_secs(1),
        }
    }

    /// Waits until the child is ready, without a limit. Cancel-safe.
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
            // Logged once per reason, so a slow start does not flood the log.
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
                let place = http::shown(url);
                let failed = |error: reqwest::Error| format!("{place}: {}", http::chain(&error.without_url()));
                let status = answer.map_err(failed)?.status();
                if status.is_success() || status.is_redirection() {
                    Ok(())
                } else {
                    Err(format!("{place} answers {status}"))
                }
            }
            Probe::Command(command) => run(command, processes, helpers).await,
        }
    }
}

async fn run(command: &[OsString], processes: &Processes, helpers: &Helpers) -> Result<(), String> {
    let started = processes.spawn(helpers.launch(command)).await;
    let mut started = started.map_err(|error| error.to_string())?;
    let group = Group(processes, started.pid);
    let code = started.code().await;
    drop(group);
    if code == 0 {
        Ok(())
    } else {
        Err(format!("the probe ends with {code}"))
    }
}

/// Kills the probe's process group when dropped: a probe that timed out, and processes that a finished probe left
/// behind.
struct Group<'a>(&'a Processes, Pid);

impl Drop for Group<'_> {
    fn drop(&mut self) {
        self.0.kill_group_of(self.1);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;

    use super::*;
    use tenure_core::clock::SystemClock;

    #[tokio::test]
    async fn probe_sends_credentials_but_does_not_log_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1_024];
            let length = stream.read(&mut request).unwrap();
            stream
                .write_all(b"HTTP/1.1 500 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .unwrap();
            String::from_utf8_lossy(&request[..length]).to_ascii_lowercase()
        });
        let clock: Arc<dyn Clock> = SystemClock::shared();
        let (processes, helpers) = (Processes::adopting(&clock).unwrap(), Helpers::of_this_program("", ""));
        let probe = Readiness::by(Probe::Http(format!("http://user:s3cret@{address}/health")));
        let answered = probe.attempt(&processes, &helpers).await.unwrap_err();
        assert!(answered.contains("/health answers 500"), "{answered}");
        assert!(server.join().unwrap().contains("authorization: basic"));
        // The port is closed now.
        let refused = probe.attempt(&processes, &helpers).await.unwrap_err();
        assert!(refused.contains("/health: "), "{refused}");
        for said in [answered, refused] {
            assert!(!said.contains("s3cret") && !said.contains("user"), "{said}");
        }
    }
}
