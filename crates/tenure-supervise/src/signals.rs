//! The signals that a supervisor gets: some ask it to end, all others are for its child.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc;

/// All of them, as a stream. As process 1 of a container a signal without a listener would be dropped by the kernel.
#[derive(Debug)]
pub struct Signals(Vec<(Signal, unix::Signal)>);

/// What a signal wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// The end; the exit code for it is 128 + n.
    End(u8),
    /// Something of the child.
    Pass(Signal),
}

impl Signals {
    /// From here on these signals no longer end this process.
    ///
    /// # Errors
    /// When the system gives no signals.
    pub fn listen() -> io::Result<Self> {
        let wanted = [
            (Signal::TERM, SignalKind::terminate()),
            (Signal::INT, SignalKind::interrupt()),
            (Signal::QUIT, SignalKind::quit()),
            (Signal::HUP, SignalKind::hangup()),
            (Signal::USR1, SignalKind::user_defined1()),
            (Signal::USR2, SignalKind::user_defined2()),
            (Signal::WINCH, SignalKind::window_change()),
        ];
        let streams: io::Result<Vec<_>> = wanted
            .into_iter()
            .map(|(signal, kind)| unix::signal(kind).map(|stream| (signal, stream)))
            .collect();
        Ok(Self(streams?))
    }

    /// The next one.
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

    /// Hands them on as wishes, for as long as somebody listens.
    pub fn forward(mut self, tell: mpsc::Sender<Wish>) {
        tokio::spawn(async move { while tell.send(self.wish().await).await.is_ok() {} });
    }

    /// The next one, as what it wants of a supervisor: TERM, INT and QUIT ask for the end.
    pub async fn wish(&mut self) -> Wish {
        let signal = self.next().await;
        if matches!(signal, Signal::TERM | Signal::INT | Signal::QUIT) {
            let code = 128_i32.saturating_add(signal.as_raw());
            Wish::End(u8::try_from(code).unwrap_or(u8::MAX))
        } else {
            Wish::Pass(signal)
        }
    }
}
