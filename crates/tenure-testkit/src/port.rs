//! A loopback port that stays reserved until the handle is dropped.
//!
//! Binding port 0, reading its number and closing it again is racy: another test may get the same number, and an
//! outgoing connection may take it while the server restarts. So ports come from below the ephemeral range and are
//! reserved across processes by a lock on one file per port, which the operating system releases with the process.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, bail};

/// Below Linux' ephemeral ports (32768 and up), above the ports of common services.
const FIRST: u16 = 18_000;
const COUNT: u16 = 10_000;

/// A reserved port on 127.0.0.1; dropping it releases the port.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Reserves a port without a listener.
    ///
    /// # Panics
    /// If no port is free or the lock directory cannot be written.
    #[must_use]
    #[track_caller]
    pub fn reserve() -> Port {
        match try_reserve() {
            Ok(port) => port,
            Err(error) => panic!("no test port: {error:#}"),
        }
    }

    /// The port's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:<port>`.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.number))
    }
}

fn try_reserve() -> Result<Port> {
    static NEXT: AtomicU16 = AtomicU16::new(0);

    let dir = lock_dir()?;
    // Processes start at different numbers, so that they do not all contend for the first port.
    let start = u16::try_from(std::process::id() % u32::from(COUNT))
        .unwrap_or_default()
        .wrapping_mul(7)
        % COUNT;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let number = FIRST + (start + step) % COUNT;
        let path = dir.join(number.to_string());
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.with_context(|| format!("open {}", path.display()))?;
        if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
            return Ok(Port { number, _lock: lock });
        }
    }
    bail!("all of {FIRST}..{} are taken", FIRST + COUNT)
}

fn lock_dir() -> Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let dir = std::env::temp_dir().join(format!("tenure-testkit-ports-{user}"));
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_port_is_reserved_twice() {
        let ports: Vec<Port> = (0..50).map(|_| Port::reserve()).collect();
        let numbers: HashSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        assert!(numbers.iter().all(|n| (FIRST..FIRST + COUNT).contains(n)));
    }

    #[test]
    fn a_reserved_port_can_be_bound_by_its_owner() {
        let port = Port::reserve();
        assert_eq!(
            TcpListener::bind(port.addr()).unwrap().local_addr().unwrap().port(),
            port.number()
        );
    }
}
