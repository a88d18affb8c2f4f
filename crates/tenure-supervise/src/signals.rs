//! The signals of a supervisor: some stop it, the others are forwarded to its child.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc;

/// A stream of all handled signals. As process 1 of a container, the kernel would drop a signal without a handler.
#[derive(Debug)]
pub struct Signals(Vec<(Signal, unix::Signal)>);

/// What a signal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalAction {
    /// Stop the supervisor; its exit code is 128 + n.
    Stop(u8),
    /// Forward the signal to the child.
    Forward(Signal),
}

impl Signals {
    /// Installs the handlers. From then on these signals no longer end this process.
    ///
    /// # Errors
    /// When the system refuses a handler.
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

    /// Sends the actions until the receiver is dropped.
    pub fn forward(mut self, tell: mpsc::Sender<SignalAction>) {
        tokio::spawn(async move { while tell.send(self.next_action().await).await.is_ok() {} });
    }

    /// The next action: TERM, INT and QUIT stop the supervisor.
    pub async fn next_action(&mut self) -> SignalAction {
        let signal = self.next().await;
        if matches!(signal, Signal::TERM | Signal::INT | Signal::QUIT) {
            let code = 128_i32.saturating_add(signal.as_raw());
            SignalAction::Stop(u8::try_from(code).unwrap_or(u8::MAX))
        } else {
            SignalAction::Forward(signal)
        }
    }
}
