//! A loop that belongs to an owner and ends with it. It turns when there is work and sleeps otherwise.
//!
//! Failures and panics are handled as for [`super::Loops`]. It is not listed there, because a process may have one for
//! each of thousands of memberships.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tenure_core::clock::{Clock, jitter};
use tenure_core::error::{ErrorKind, Result};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::FLOOR;
use super::running::message_of;

/// This many failures in a row are retried at four times the owner's pace, later ones at that pace.
const QUICK: u32 = 4;

/// The body of an owned loop.
pub(crate) trait OwnedLoop: Send + Sync {
    /// Notified when there may be work.
    fn wakeup(&self) -> &Notify;

    /// The time until there is work; `None` if there is none before the next notification.
    fn due_in(&self) -> Option<Duration>;

    /// Does the work. It is dropped at its `await` when the owner ends.
    ///
    /// # Errors
    /// Any error; the turn is retried. `Ended` is not a failure: the next tenure notifies the loop.
    fn turn(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Logs the first failure in a row. The beats report the rest of an outage.
    fn failed(&self, error: &str);
}

/// The owner of a loop: its clock, its pace, and the token for its end.
pub(crate) struct Owner<'a> {
    pub(crate) clock: &'a dyn Clock,
    /// The pause after a failure that is not urgent.
    pub(crate) pace: Duration,
    pub(crate) over: &'a CancellationToken,
}

/// Runs a loop until its owner ends.
pub(crate) async fn run_owned(owner: Owner<'_>, body: &mut impl OwnedLoop) {
    tokio::select! {
        biased;
        () = owner.over.cancelled() => {}
        () = run(&owner, body) => {}
    }
}

async fn run(owner: &Owner<'_>, body: &mut impl OwnedLoop) {
    let mut failed = 0u32;
    loop {
        until_due(owner, body).await;
        let error = match AssertUnwindSafe(body.turn()).catch_unwind().await {
            Ok(Ok(())) => {
                failed = 0;
                continue;
            }
            Ok(Err(error)) if matches!(error.kind(), ErrorKind::Ended(_)) => {
                // The beats notice the end and rejoin, which notifies this loop.
                tokio::select! { biased; () = body.wakeup().notified() => {}, () = pause(owner, owner.pace) => {} }
                continue;
            }
            Ok(Err(error)) => error.chain(),
            Err(panic) => format!("panicked: {}", message_of(&*panic)),
        };
        failed = failed.saturating_add(1);
        if failed == 1 {
            body.failed(&error);
        }
        pause(owner, owner.pace / if failed <= QUICK { 4 } else { 1 }).await;
    }
}

async fn until_due(owner: &Owner<'_>, body: &impl OwnedLoop) {
    loop {
        let news = body.wakeup().notified();
        match body.due_in() {
            Some(Duration::ZERO) => return,
            Some(wait) => tokio::select! { biased; () = news => {}, () = owner.clock.sleep(wait) => {} },
            None => news.await,
        }
    }
}

async fn pause(owner: &Owner<'_>, base: Duration) {
    owner.clock.sleep(jitter(owner.clock, base, 25).max(FLOOR)).await;
}
