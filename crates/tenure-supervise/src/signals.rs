//! The signals of a supervisor: some stop it, the others are forwarded to its child.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc;

/// The signals that are handled.
const HANDLED: [(Signal, NixSignal); 8] = [
    (Signal::TERM, NixSignal::SIGTERM),
    (Signal::INT, NixSignal::SIGINT),
    (Signal::QUIT, NixSignal::SIGQUIT),
    (Signal::HUP, NixSignal::SIGHUP),
    (Signal::USR1, NixSignal::SIGUSR1),
    (Signal::USR2, NixSignal::SIGUSR2),
    (Signal::WINCH, NixSignal::SIGWINCH),
    (Signal::CONT, NixSignal::SIGCONT),
];

/// What asks a service to stop.
pub const STOPS_SERVICE: &[Signal] = &[Signal::TERM, Signal::INT, Signal::QUIT];

/// A stream of all handled signals.
#[derive(Debug)]
pub struct Signals(Vec<(Signal, unix::Signal)>);

/// What a signal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalAction {
    /// Stop the supervisor; its exit code is 128 + n. A code below 128 is not of a signal.
    Stop(u8),
    /// Forward the signal to the child.
    Forward(Signal),
}

/// The exit code that stands for a signal: 128 + n.
#[must_use]
pub fn code_of(signal: Signal) -> u8 {
    u8::try_from(signal.as_raw().saturating_add(128)).unwrap_or(u8::MAX)
}

/// Blocks the handled signals until [`Signals::listen`], if this is process 1: the kernel drops a signal to process 1 that
/// has no handler, unless it is blocked. Call it first, before there are other threads.
pub fn hold_for_process_1() {
    if std::process::id() == 1 {
        // Fails only for an invalid request.
        let _ = handled().thread_block();
    }
}

impl Signals {
    /// Installs the handlers. From then on these signals no longer end this process. A signal that was ignored when the
    /// process started stays ignored, for this process and its children (`nohup`).
    ///
    /// Call it on the thread that called [`hold_for_process_1`].
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let wanted = HANDLED.into_iter().filter(|(signal, _)| !has(ignored, *signal));
        let streams = wanted.map(|(signal, _)| {
            let stream = unix::signal(SignalKind::from_raw(signal.as_raw()));
            stream.map(|stream| (signal, stream))
        });
        let streams: io::Result<Vec<_>> = streams.collect();
        let streams = streams?;
        let _ = handled().thread_unblock();
        Ok(Self(streams))
    }

    /// The next signal.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let arrived = self
                .0
                .iter_mut()
                .find_map(|(signal, stream)| stream.poll_recv(context).is_ready().then_some(*signal));
            arrived.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Waits for a signal that asks to end: TERM, INT, QUIT or HUP. Returns its exit code.
    pub async fn asked_to_end(&mut self) -> u8 {
        loop {
            let signal = self.next().await;
            if matches!(signal, Signal::TERM | Signal::INT | Signal::QUIT | Signal::HUP) {
                return code_of(signal);
            }
        }
    }

    /// Sends the actions until the receiver is dropped. The signals in `stop` stop the supervisor.
    pub fn forward(mut self, stop: &'static [Signal], tell: mpsc::Sender<SignalAction>) {
        tokio::spawn(async move {
            loop {
                let signal = self.next().await;
                let action = if stop.contains(&signal) {
                    SignalAction::Stop(code_of(signal))
                } else {
                    SignalAction::Forward(signal)
                };
                if tell.send(action).await.is_err() {
                    return;
                }
            }
        });
    }
}

fn handled() -> SigSet {
    HANDLED.into_iter().map(|(_, signal)| signal).collect()
}

/// The signals that this process ignores, as the kernel shows them: bit n - 1 stands for signal n. None without `/proc`.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}

fn has(mask: u64, signal: Signal) -> bool {
    let bit = u32::try_from(signal.as_raw()).ok().and_then(|n| n.checked_sub(1));
    bit.and_then(|bit| mask.checked_shr(bit))
        .is_some_and(|shifted| shifted & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_of_the_kernel_names_signals_from_bit_0() {
        // HUP is 1, TERM is 15.
        assert!(has(0x4001, Signal::HUP) && has(0x4001, Signal::TERM));
        assert!(!has(0x4001, Signal::INT) && !has(0, Signal::HUP));
    }
}
