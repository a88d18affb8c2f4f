//! This process's line to the mirror of one roster. Every call of the mirror goes through it, so that each failure is
//! counted once, and each answer says whether it is to be believed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, ProviderId, RosterName, TenureId};
use tenure_core::membership::{EndBy, EndReason, Member};
use tenure_core::remote_clock::RemoteClock;
use tenure_core::roster::{Put, PutOutcome, RosterMirror, Seated, Stamp, group_of};
use tenure_core::store::{Call, Store};
use tenure_core::timeout::Timeout;

use super::trust::Trust;
use crate::meters;

/// How long a call with many items may take.
pub(crate) const BULK: Duration = Duration::from_secs(2);
/// How many items such a call has at most.
pub(crate) const BULK_ITEMS: usize = 1_000;

/// The hot store, as all rosters of a process share it.
#[derive(Clone)]
pub(crate) struct Hot {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// How long a call with few items may take.
    patience: Duration,
}

impl Hot {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, patience: Duration) -> Self {
        Self { store, clock, patience }
    }
}

/// The line.
pub(crate) struct Line {
    hot: Hot,
    roster: RosterName,
    group: Group,
    trust: Mutex<Trust>,
    known: AtomicBool,
    /// Of one roster: the nodes of a cluster have clocks of their own.
    store_clock: RemoteClock,
}

impl Line {
    /// # Errors
    /// `Invalid` for a name that is too long to be a group's.
    pub(crate) fn new(hot: Hot, roster: RosterName) -> Result<Self> {
        Ok(Self {
            group: group_of(&roster)?,
            trust: Mutex::new(Trust::new(hot.clock.mono())),
            known: AtomicBool::new(false),
            store_clock: RemoteClock::default(),
            hot,
            roster,
        })
    }

    /// Which roster.
    pub(crate) fn roster(&self) -> &RosterName {
        &self.roster
    }

    /// Whether the ledger knows the roster. Others are asked for by whoever mistypes a name.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    pub(crate) fn set_known(&self, known: bool) {
        self.known.store(known, Ordering::Relaxed);
    }

    /// The label of metrics: names that the ledger does not know have one together, so that callers cannot make series.
    pub(crate) fn label(&self) -> String {
        match self.is_known() {
            true => self.roster.to_string(),
            false => "other".to_owned(),
        }
    }

    /// The group of the roster in the hot store.
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// What is known of the mirror.
    pub(crate) fn trust(&self) -> MutexGuard<'_, Trust> {
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether to ask the mirror rather than the ledger.
    pub(crate) fn is_believed(&self) -> bool {
        self.trust().is_believed()
    }

    /// Whether a call would be in vain.
    pub(crate) fn is_away(&self) -> bool {
        self.trust().is_away()
    }

    /// The mirror itself, for calls to be made through [`Line::ask`] and [`Line::read`].
    ///
    /// # Errors
    /// `Unsupported`, never seen: the service starts on no store without.
    pub(crate) fn mirror(&self) -> Result<&dyn RosterMirror> {
        let none = || Error::new(ErrorKind::Unsupported, "this store mirrors no roster");
        self.hot.store.mirror().ok_or_else(none)
    }

    /// The limits of a call that is given up after this long.
    pub(crate) fn limits(&self, patience: Duration) -> Call {
        self.store_clock
            .not_after(self.hot.clock.mono() + patience, Call::default())
    }

    /// How long a call with few items may take.
    pub(crate) fn patience(&self) -> Duration {
        self.hot.patience
    }

    /// Makes a call. Its failure ends belief, until the outbox is drained; a refusal (`Invalid`) is none.
    ///
    /// # Errors
    /// Those of the call; `Unavailable` when it took longer than `patience`.
    pub(crate) async fn ask<T>(&self, patience: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
        let bound = Timeout::change(patience);
        let done = bound.call(&*self.hot.clock, "the hot store", call).await;
        match &done {
            Ok(_) => self.trust().answered(self.hot.clock.mono()),
            Err(error) if error.kind() == ErrorKind::Invalid => {}
            Err(error) => self.lost(error),
        }
        done
    }

    /// Makes a call whose answer carries a stamp, and says whether the answer is to be believed.
    ///
    /// # Errors
    /// As [`Line::ask`].
    pub(crate) async fn read<T>(
        &self,
        call: impl Future<Output = Result<T>>,
        stamp: impl FnOnce(&T) -> &Stamp,
    ) -> Result<(T, bool)> {
        let (acked, asked) = (self.trust().acked(), self.hot.clock.mono());
        let answer = self.ask(self.hot.patience, call).await?;
        let stamp = stamp(&answer);
        let arrived = self.hot.clock.mono();
        self.store_clock.learn(stamp.as_of, asked, arrived);
        let believed = self.trust().observe(stamp, acked, arrived);
        Ok((answer, believed))
    }

    /// Asks for the stamp.
    ///
    /// # Errors
    /// As [`Line::ask`].
    pub(crate) async fn stamp(&self) -> Result<Stamp> {
        let (stamp, _) = self
            .read(self.mirror()?.stamp(&self.group), |stamp: &Stamp| stamp)
            .await?;
        Ok(stamp)
    }

    /// Gives the mirror entries, and notes which versions it has now. At most [`BULK_ITEMS`] if it is to be in time.
    ///
    /// # Errors
    /// As [`Line::ask`].
    pub(crate) async fn put(&self, puts: &[Put]) -> Result<Vec<PutOutcome>> {
        let patience = self.patience_for(puts.len());
        let call = self.limits(patience);
        let outcomes = self
            .ask(patience, self.mirror()?.put_providers(&self.group, puts, call))
            .await?;
        if outcomes.len() != puts.len() {
            return Err(Error::new(
                ErrorKind::Internal,
                "the mirror answered fewer rows than it was given",
            ));
        }
        if let Some(highest) = outcomes.iter().map(|outcome| outcome.version).max() {
            self.trust().ack(highest);
        }
        Ok(outcomes)
    }

    /// Gives those a tenure who have none that is alive.
    ///
    /// # Errors
    /// As [`Line::ask`].
    pub(crate) async fn seat(
        &self,
        providers: &[ProviderId],
        stale_after: Duration,
        beat: bool,
    ) -> Result<Vec<Seated>> {
        let patience = self.patience_for(providers.len());
        let call = self.limits(patience);
        let mirror = self.mirror()?;
        let seated = mirror.seat(&self.group, providers, stale_after, beat, call);
        let seated = self.ask(patience, seated).await?;
        if seated.len() != providers.len() {
            return Err(Error::new(
                ErrorKind::Internal,
                "the mirror seated fewer than it was asked to",
            ));
        }
        Ok(seated)
    }

    /// Looks up who a provider is in the hot store.
    ///
    /// # Errors
    /// As [`Line::ask`].
    pub(crate) async fn member(&self, provider: &ProviderId) -> Result<Option<Member>> {
        let member = provider.member();
        let member = self.hot.store.member(&self.group, &member);
        self.ask(self.hot.patience, member).await
    }

    /// Ends a tenure, as well as it can: one that is not ended now lapses.
    pub(crate) async fn end(&self, tenure: &TenureId, by: EndBy) {
        if self.is_away() {
            return;
        }
        let call = self.limits(self.hot.patience);
        let ended = self.hot.store.end(&self.group, tenure, by, call);
        let ended: Result<EndReason> = self.ask(self.hot.patience, ended).await;
        if let Err(error) = ended {
            tracing::debug!(%tenure, error = error.chain(), "a tenure could not be ended; it will lapse");
        }
    }

    fn patience_for(&self, items: usize) -> Duration {
        match items {
            0..=16 => self.hot.patience,
            _ => self.hot.patience.max(BULK),
        }
    }

    fn lost(&self, error: &Error) {
        if error.kind() == ErrorKind::TooLate {
            self.store_clock.forget();
        }
        self.trust().failed(self.hot.clock.mono());
        meters::roster_mirror_error(self.label());
        // The loop that looks after all mirrors says it once for all of them.
        tracing::debug!(roster = %self.roster, error = error.chain(), "a call of the roster's mirror failed");
    }
}
