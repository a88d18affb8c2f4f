//! Is the child ready to serve? Only then may others find it.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::Pid;
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

/// A probe that takes too long is killed, with what it has started; and so is what one that has ended has left in its
/// group.
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
    async fn what_is_said_about_a_probe_has_no_password_and_the_probe_itself_has() {
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
        let (processes, helpers) = (Processes::own(&clock).unwrap(), Helpers::of_this_program("", ""));
        let probe = Readiness::by(Probe::Http(format!("http://user:s3cret@{address}/health")));
        let answered = probe.attempt(&processes, &helpers).await.unwrap_err();
        assert!(answered.contains("/health answers 500"), "{answered}");
        assert!(server.join().unwrap().contains("authorization: basic"));
        // Nobody listens any more.
        let refused = probe.attempt(&processes, &helpers).await.unwrap_err();
        assert!(refused.contains("/health: "), "{refused}");
        for said in [answered, refused] {
            assert!(!said.contains("s3cret") && !said.contains("user"), "{said}");
        }
    }
}
