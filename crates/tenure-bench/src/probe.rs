//! Measures the latency of other clients: a PING every millisecond on its own connection and thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use tenure_testkit::resp::Client;

use crate::stats::{Samples, ms};

const EVERY: Duration = Duration::from_millis(1);

/// A running probe.
pub struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Samples>>,
}

impl Probe {
    /// Starts a probe.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn start(addr: SocketAddr) -> Result<Self> {
        let mut client = Client::connect(addr)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut latency = Samples::default();
            while !stopped.load(Ordering::Relaxed) {
                let sent = Instant::now();
                client.call(&["PING"])?;
                latency.push(ms(sent.elapsed()));
                thread::sleep(EVERY);
            }
            Ok(latency)
        });
        Ok(Self { stop, thread })
    }

    /// Stops the probe and returns the round trips in ms.
    ///
    /// # Errors
    /// If the server did not answer a PING within five seconds.
    pub fn finish(self) -> Result<Samples> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the probe's thread panicked"))?
    }
}

/// Round trips on an idle server.
///
/// # Errors
/// As [`Probe::start`].
pub async fn idle(addr: SocketAddr, time: Duration) -> Result<Samples> {
    let probe = Probe::start(addr)?;
    tokio::time::sleep(time).await;
    probe.finish()
}
