//! This process's client of the mirror of one roster. All calls of the mirror go through it, so each failure is counted
//! once, and each answer says whether it can be trusted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, ProviderId, RosterName, TenureId};
use tenure_core::membership::{EndBy, EndReason, Member};
use tenure_core::remote_clock::RemoteClock;
use tenure_core::roster::{EnsuredTenure, MirrorStatus, Put, PutOutcome, RosterMirror, group_of};
use tenure_core::store::{Call, Store};
use tenure_core::timeout::Timeout;

use super::hot_store::HotStoreWatch;
use super::trust::Trust;
use crate::meters;

/// The time-out of a call with many items.
pub(crate) const BULK: Duration = Duration::from_secs(2);
/// The most items in such a call.
pub(crate) const BULK_ITEMS: usize = 1_000;

/// The hot store as shared by all rosters of a process.
#[derive(Clone)]
pub(crate) struct HotStoreContext {
    store: Arc<dyn Store>,
    watch: Arc<HotStoreWatch>,
    clock: Arc<dyn Clock>,
    /// The time-out of a call with few items.
    patience: Duration,
}

impl HotStoreContext {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, patience: Duration) -> Self {
        Self {
            store,
            watch: Arc::new(HotStoreWatch::new(&*clock)),
            clock,
            patience,
        }
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(super) fn watch(&self) -> &HotStoreWatch {
        &self.watch
    }
}

/// The client of one roster's mirror.
pub(crate) struct MirrorClient {
    hot: HotStoreContext,
    roster: RosterName,
    group: Group,
    trust: Mutex<Trust>,
    known: AtomicBool,
    /// Per roster, because the nodes of a cluster have separate clocks.
    store_clock: RemoteClock,
}

impl MirrorClient {
    /// # Errors
    /// `Invalid` for a name that is too long for a group.
    pub(crate) fn new(hot: HotStoreContext, roster: RosterName) -> Result<Self> {
        Ok(Self {
            group: group_of(&roster)?,
            trust: Mutex::new(Trust::new(hot.clock.mono())),
            known: AtomicBool::new(false),
            store_clock: RemoteClock::default(),
            hot,
            roster,
        })
    }

    /// The roster's name.
    pub(crate) fn roster(&self) -> &RosterName {
        &self.roster
    }

    /// Whether the ledger knows the roster. Other names come from callers, for instance by a typing error.
    pub(crate) fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    pub(crate) fn set_known(&self, known: bool) {
        self.known.store(known, Ordering::Relaxed);
    }

    /// The label for metrics. Names that the ledger does not know share one label, so that callers cannot create time
    /// series.
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

    /// The trust in the mirror.
    pub(crate) fn trust(&self) -> MutexGuard<'_, Trust> {
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether reads should use the mirror rather than the ledger.
    pub(crate) fn is_believed(&self) -> bool {
        self.trust().is_believed()
    }

    /// Whether the mirror is unreachable, so that a call would fail.
    pub(crate) fn is_away(&self) -> bool {
        self.trust().is_away()
    }

    /// The mirror's interface, for calls through [`MirrorClient::call`] and [`MirrorClient::read`].
    ///
    /// # Errors
    /// `Unsupported`, never in practice: the service requires a store with mirrors.
    pub(crate) fn api(&self) -> Result<&dyn RosterMirror> {
        let none = || Error::new(ErrorKind::Unsupported, "this store mirrors no roster");
        self.hot.store.mirror().ok_or_else(none)
    }

    /// The limits of a call with this time-out.
    pub(crate) fn limits(&self, patience: Duration) -> Call {
        self.store_clock
            .not_after(self.hot.clock.mono() + patience, Call::default())
    }

    /// The time-out of a call with few items.
    pub(crate) fn patience(&self) -> Duration {
        self.hot.patience
    }

    /// Makes a call. A failure ends the trust in the mirror until the outbox is drained; a rejection (`Invalid`) does
    /// not.
    ///
    /// # Errors
    /// Those of the call; `Unavailable` when it took longer than `patience`.
    pub(crate) async fn call<T>(&self, patience: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
        let bound = Timeout::change(patience);
        let call = async {
            self.hot.watch.check()?;
            call.await
        };
        let done = bound.call(&*self.hot.clock, "the hot store", call).await;
        match &done {
            Ok(_) => self.trust().answered(self.hot.clock.mono()),
            Err(error) if error.kind() == ErrorKind::Invalid => {}
            Err(error) => self.failed(error),
        }
        done
    }

    /// Makes a call whose answer carries a stamp. Returns the answer and whether it can be trusted.
    ///
    /// # Errors
    /// As [`MirrorClient::call`].
    pub(crate) async fn read<T>(
        &self,
        call: impl Future<Output = Result<T>>,
        stamp: impl FnOnce(&T) -> &MirrorStatus,
    ) -> Result<(T, bool)> {
        let (acked, asked) = (self.trust().acked(), self.hot.clock.mono());
        let answer = self.call(self.hot.patience, call).await?;
        let stamp = stamp(&answer);
        let arrived = self.hot.clock.mono();
        self.store_clock.learn(stamp.as_of, asked, arrived);
        let believed = self.trust().observe(stamp, acked, arrived);
        Ok((answer, believed))
    }

    /// Reads the stamp.
    ///
    /// # Errors
    /// As [`MirrorClient::call`].
    pub(crate) async fn stamp(&self) -> Result<MirrorStatus> {
        let (stamp, _) = self
            .read(self.api()?.mirror_status(&self.group), |stamp: &MirrorStatus| stamp)
            .await?;
        Ok(stamp)
    }

    /// Writes entries to the mirror and records the versions it has. At most [`BULK_ITEMS`], to finish within the
    /// time-out.
    ///
    /// # Errors
    /// As [`MirrorClient::call`].
    pub(crate) async fn put(&self, puts: &[Put]) -> Result<Vec<PutOutcome>> {
        let patience = self.patience_for(puts.len());
        let call = self.limits(patience);
        let outcomes = self
            .call(patience, self.api()?.put_providers(&self.group, puts, call))
            .await?;
        if outcomes.len() != puts.len() {
            return Err(Error::new(
                ErrorKind::Internal,
                "the mirror answered fewer rows than it was sent",
            ));
        }
        if let Some(highest) = outcomes.iter().map(|outcome| outcome.version).max() {
            self.trust().ack(highest);
        }
        Ok(outcomes)
    }

    /// Gives a tenure to each of these providers without a living one.
    ///
    /// # Errors
    /// As [`MirrorClient::call`].
    pub(crate) async fn seat(
        &self,
        providers: &[ProviderId],
        stale_after: Duration,
        beat: bool,
    ) -> Result<Vec<EnsuredTenure>> {
        let patience = self.patience_for(providers.len());
        let call = self.limits(patience);
        let mirror = self.api()?;
        let seated = mirror.ensure_tenures(&self.group, providers, stale_after, beat, call);
        let seated = self.call(patience, seated).await?;
        if seated.len() != providers.len() {
            return Err(Error::new(
                ErrorKind::Internal,
                "the mirror gave fewer tenures than requested",
            ));
        }
        Ok(seated)
    }

    /// Reads a provider's membership in the hot store.
    ///
    /// # Errors
    /// As [`MirrorClient::call`].
    pub(crate) async fn member(&self, provider: &ProviderId) -> Result<Option<Member>> {
        let member = provider.member();
        let member = self.hot.store.member(&self.group, &member);
        self.call(self.hot.patience, member).await
    }

    /// Ends a tenure, best effort: if the call fails, the tenure lapses.
    pub(crate) async fn end(&self, tenure: &TenureId, by: EndBy) {
        if self.is_away() {
            return;
        }
        let call = self.limits(self.hot.patience);
        let ended = self.hot.store.end(&self.group, tenure, by, call);
        let ended: Result<EndReason> = self.call(self.hot.patience, ended).await;
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

    fn failed(&self, error: &Error) {
        if error.kind() == ErrorKind::TooLate {
            self.store_clock.forget();
        }
        self.trust().failed(self.hot.clock.mono());
        meters::roster_mirror_error(self.label());
        // `SyncLoop` logs an outage once for all mirrors.
        tracing::debug!(roster = %self.roster, error = error.chain(), "a call of the roster's mirror failed");
    }
}
