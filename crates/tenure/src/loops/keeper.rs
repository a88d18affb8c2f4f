//! A loop that belongs to one owner and ends with it: it turns when there is work, and otherwise sleeps.
//!
//! It survives its bad turns as the loops of [`super::Loops`] do. It is not listed there: a process may have one for each of
//! thousands of memberships.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tenure_core::clock::{Clock, jitter};
use tenure_core::error::{ErrorKind, Result};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::FLOOR;
use super::running::message_of;

/// So many failures in a row are tried again at four times the pace of the owner, later ones at that pace.
const QUICK: u32 = 4;

/// What a keeper does.
pub(crate) trait Keeper: Send + Sync {
    /// Woken when there may be work.
    fn news(&self) -> &Notify;

    /// The time until there is work; `None` when there is none before the next news.
    fn due_in(&self) -> Option<Duration>;

    /// Does the work. It is dropped where it waits when its owner ends.
    ///
    /// # Errors
    /// Whatever failed; the turn is tried again. `Ended` is no failure: the next tenure starts the keeper afresh.
    fn turn(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Logs the first of the turns in a row that fail. The beats report the rest of an outage.
    fn failed(&self, error: &str);
}

/// The owner of a keeper: its clock, its pace and its end.
pub(crate) struct Owner<'a> {
    pub(crate) clock: &'a dyn Clock,
    /// How long to wait after a failure that is not urgent.
    pub(crate) pace: Duration,
    pub(crate) over: &'a CancellationToken,
}

/// Runs a keeper until its owner is over. Nothing else ends it.
pub(crate) async fn keep(owner: Owner<'_>, keeper: &mut impl Keeper) {
    tokio::select! {
        biased;
        () = owner.over.cancelled() => {}
        () = run(&owner, keeper) => {}
    }
}

async fn run(owner: &Owner<'_>, keeper: &mut impl Keeper) {
    let mut failed = 0u32;
    loop {
        until_due(owner, keeper).await;
        let error = match AssertUnwindSafe(keeper.turn()).catch_unwind().await {
            Ok(Ok(())) => {
                failed = 0;
                continue;
            }
            Ok(Err(error)) if matches!(error.kind(), ErrorKind::Ended(_)) => {
                // The beats notice the end, and join again: that is news.
                tokio::select! { biased; () = keeper.news().notified() => {}, () = pause(owner, owner.pace) => {} }
                continue;
            }
            Ok(Err(error)) => error.chain(),
            Err(panic) => format!("panicked: {}", message_of(&*panic)),
        };
        failed = failed.saturating_add(1);
        if failed == 1 {
            keeper.failed(&error);
        }
        pause(owner, owner.pace / if failed <= QUICK { 4 } else { 1 }).await;
    }
}

async fn until_due(owner: &Owner<'_>, keeper: &impl Keeper) {
    loop {
        let news = keeper.news().notified();
        match keeper.due_in() {
            Some(Duration::ZERO) => return,
            Some(wait) => tokio::select! { biased; () = news => {}, () = owner.clock.sleep(wait) => {} },
            None => news.await,
        }
    }
}

async fn pause(owner: &Owner<'_>, base: Duration) {
    owner.clock.sleep(jitter(owner.clock, base, 25).max(FLOOR)).await;
}
