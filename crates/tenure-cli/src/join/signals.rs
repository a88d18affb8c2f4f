//! The signals that `join` passes on to its command.

use std::future::poll_fn;
use std::task::Poll;

use anyhow::Context;
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// All of them, as a stream.
#[derive(Debug)]
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// From here on these signals no longer end this process.
    pub(super) fn listen() -> anyhow::Result<Self> {
        let wanted = [
            (Signal::TERM, SignalKind::terminate()),
            (Signal::INT, SignalKind::interrupt()),
            (Signal::HUP, SignalKind::hangup()),
            (Signal::QUIT, SignalKind::quit()),
            (Signal::USR1, SignalKind::user_defined1()),
            (Signal::USR2, SignalKind::user_defined2()),
        ];
        let streams: Result<Vec<_>, _> = wanted
            .into_iter()
            .map(|(signal, kind)| unix::signal(kind).map(|stream| (signal, stream)))
            .collect();
        Ok(Self(streams.context("cannot listen to signals")?))
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let arrived = self
                .0
                .iter_mut()
                .find_map(|(signal, stream)| stream.poll_recv(context).is_ready().then_some(*signal));
            arrived.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// One that has arrived already and asks to end.
    pub(super) async fn pending_end(&mut self) -> Option<Signal> {
        loop {
            let signal = tokio::select! {
                biased;
                signal = self.next() => signal,
                () = std::future::ready(()) => return None,
            };
            if !matches!(signal, Signal::USR1 | Signal::USR2) {
                return Some(signal);
            }
        }
    }
}
