//! When a request is sent again: after a refusal that changed nothing and passes soon, with another not-after, and once
//! more if it is durable and its answer was lost. Broken connections: [`Inner::once`].

use std::time::Duration;

use reqwest::Method;
use tenure_core::clock::{Mono, jitter, within};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::store::Call;
use tenure_core::timeout::Timeout;

use super::Inner;
use super::request::{DaemonResponse, Effect, PreparedRequest, RequestFailure};
use crate::wire::Now;

/// How often a request is sent in total while the daemon refuses it.
const ATTEMPTS: u32 = 3;
/// The pause after a refusal that names none.
const PAUSE: Duration = Duration::from_millis(100);

impl Inner {
    /// One attempt to get an answer within `patience`.
    pub(super) async fn answer(
        &self,
        ready: &PreparedRequest,
        effect: Effect,
        patience: Duration,
        give_up: Mono,
    ) -> Result<DaemonResponse> {
        let timeout = match effect {
            Effect::Harmless => Timeout::read(patience),
            Effect::Mutates(_) | Effect::Commits => Timeout::change(patience),
        };
        let sending = async {
            match effect {
                Effect::Harmless => self.harmless(ready, give_up).await,
                Effect::Mutates(call) => self.mutating(ready, call, give_up).await,
                Effect::Commits => self.committing(ready, give_up).await,
            }
        };
        let used = self.connector.current().number;
        let sent = within(&*self.clock, patience, sending).await;
        sent.unwrap_or_else(|| {
            self.timed_out();
            // The other idle connections may lead to the same nowhere.
            self.connector.drop_idle(used);
            Err(timeout.no_answer(&self.base))
        })
    }

    async fn harmless(&self, ready: &PreparedRequest, give_up: Mono) -> Result<DaemonResponse> {
        let first = match ready.method == Method::GET {
            true => self.admitted(ready, Call::default(), give_up).await,
            false => self.once(ready, Call::default(), give_up).await,
        };
        first.map_err(|failed| failed.into_error(Outcome::Unchanged))
    }

    /// Sends it with a not-after. If the daemon rejects it as late although the caller is still waiting (the store's
    /// clock was set forward), nothing changed, and it is sent again with the corrected clock.
    async fn mutating(&self, ready: &PreparedRequest, call: Call, give_up: Mono) -> Result<DaemonResponse> {
        if !self.store_clock.is_fresh(self.clock.mono()) {
            self.ask_now(give_up).await?;
        }
        let limits = self.store_clock.not_after(give_up, call);
        let unknown = |failed: RequestFailure| failed.into_error(Outcome::Unknown);
        match self.admitted(ready, limits, give_up).await.map_err(unknown) {
            Err(error) if error.kind() == ErrorKind::TooLate && limits != call => {
                let again = async {
                    self.ask_now(give_up).await?;
                    let limits = self.store_clock.not_after(give_up, call);
                    self.once(ready, limits, give_up).await.map_err(unknown)
                };
                again.await.map_err(|later| after(&error, later))
            }
            other => other,
        }
    }

    /// Sends it with a not-after if the store's clock is known. Without one otherwise, or if the estimate turned out
    /// wrong.
    async fn committing(&self, ready: &PreparedRequest, give_up: Mono) -> Result<DaemonResponse> {
        let limits = match self.store_clock.is_fresh(self.clock.mono()) {
            true => self.store_clock.not_after(give_up, Call::default()),
            false => Call::default(),
        };
        let unknown = |failed: RequestFailure| failed.into_error(Outcome::Unknown);
        match self.admitted(ready, limits, give_up).await.map_err(unknown) {
            Err(error) if error.kind() == ErrorKind::TooLate => {
                let again = self.once(ready, Call::default(), give_up).await.map_err(unknown);
                again.map_err(|later| after(&error, later))
            }
            other => other,
        }
    }

    /// Reads the store's time.
    async fn ask_now(&self, give_up: Mono) -> Result<()> {
        let ready = PreparedRequest {
            method: Method::GET,
            url: self.url(&["v1", "now"])?,
            body: None,
            expected: &[],
            token: None,
            repeatable: true,
        };
        let asked = self.clock.mono();
        let now: Now = self.harmless(&ready, give_up).await?.json()?;
        self.store_clock.learn(now.now, asked, self.clock.mono());
        Ok(())
    }

    /// Sends a request, and again while the daemon is busy (429, 503) and says that it will not be for long. A beat is not
    /// repeated: the membership has its own pace, and the beats of other members wait behind it.
    async fn admitted(
        &self,
        ready: &PreparedRequest,
        limits: Call,
        give_up: Mono,
    ) -> Result<DaemonResponse, RequestFailure> {
        for _ in 1..ATTEMPTS {
            let refusal = match self.once(ready, limits, give_up).await {
                Err(RequestFailure::Answered(refusal)) => refusal,
                other => return other,
            };
            let pause = refusal.retry_after().unwrap_or_else(|| jitter(&*self.clock, PAUSE, 50));
            let left = give_up.since(self.clock.mono());
            if !refusal.is_unavailable() || refusal.outcome() == Outcome::Unknown || pause >= left {
                return Err(RequestFailure::Answered(refusal));
            }
            self.clock.sleep(pause).await;
        }
        self.once(ready, limits, give_up).await
    }
}

/// The error of a repetition. The request before it may have taken effect.
fn after(earlier: &Error, later: Error) -> Error {
    match earlier.outcome() {
        Outcome::Unknown => later.with_outcome(Outcome::Unknown),
        Outcome::Unchanged => later,
    }
}

/// Whether the answer to a change was lost.
pub(super) fn is_unanswered(error: &Error) -> bool {
    error.is_unavailable() && error.outcome() == Outcome::Unknown
}
