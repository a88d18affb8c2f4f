//! The service is wanted: it is registered where it is missing, and beats.

use std::time::Duration;

use tenure_core::clock::{Mono, jitter};

use super::{Actor, FIRST_RETRY, HOLDING, Parts, Presence};
use crate::catalog::journal::Entry;
use crate::catalog::remove::{Found, look};
use crate::catalog::{Failure, Phase};

impl Actor {
    /// Registers it where it is missing, and beats. Answers when the next beat is due.
    pub(super) async fn keep(&mut self) -> Result<Duration, Failure> {
        let sent = self.parts.clock.mono();
        if self.presence == Presence::Taken {
            match self.found().await? {
                Found::Another => return Ok(self.until_beat(sent)),
                Found::Ours | Found::Differs | Found::Nothing => self.presence = Presence::Maybe,
            }
        }
        if self.presence == Presence::Yes {
            if self.parts.agent.pass(&self.parts.service).await? {
                self.compare().await?;
                self.hold().await;
                return Ok(self.beaten(sent));
            }
            tracing::warn!(
                agent = self.parts.agent.place(),
                id = self.parts.service.id,
                "the agent knows nothing of the check; registering again"
            );
            self.presence = Presence::Maybe;
        }
        self.register(false).await?;
        if self.is_overtaken() {
            return Ok(Duration::ZERO);
        }
        let sent = self.parts.clock.mono();
        if !self.parts.agent.pass(&self.parts.service).await? {
            return Err(Failure::Odd(
                "the check is missing right after it was registered".to_owned(),
            ));
        }
        self.presence = Presence::Yes;
        self.altered = false;
        self.compare().await?;
        Ok(self.beaten(sent))
    }

    async fn register(&mut self, passing: bool) -> Result<(), Failure> {
        let Parts {
            agent, service, life, ..
        } = &self.parts;
        if !self.written {
            let entry = Entry {
                agent: agent.place().to_owned(),
                id: service.id.clone(),
                life: life.clone(),
            };
            self.written = self.parts.journal.write(&entry).await;
        }
        if self.presence != Presence::Yes && self.parts.tell.borrow().phase != Phase::Forbidden {
            self.say(Phase::Registering, None, None);
        }
        self.hold_first().await;
        if self.is_overtaken() {
            return Ok(());
        }
        if self.presence != Presence::Yes {
            self.presence = Presence::Maybe;
        }
        // From here on it may be there, whatever becomes of the call.
        self.flight = true;
        let Parts {
            agent, service, life, ..
        } = &self.parts;
        let done = agent.register(service, life, passing).await;
        if done.is_ok() {
            self.flight = false;
            // Whatever an earlier life has left under this id is replaced by it.
            self.replaced().await;
        }
        done
    }

    /// Holds the registration under our tenure before it is made. The store is waited for once for each wish: an agent that
    /// has lost a registration gets it back at once.
    async fn hold_first(&mut self) {
        let Some(hold) = &self.parts.hold else { return };
        if std::mem::replace(&mut self.waited, true) {
            return self.hold().await;
        }
        let (mut want, bound) = (self.parts.want.clone(), self.parts.service.beat().min(HOLDING));
        tokio::select! {
            () = hold.take_first(bound) => {}
            _ = want.changed() => {}
        }
    }

    /// Holds the registration under our tenure, where there is one. Given up when something else is wanted: a store that
    /// hangs must not keep us from deregistering.
    async fn hold(&self) {
        let Some(hold) = &self.parts.hold else { return };
        let mut want = self.parts.want.clone();
        tokio::select! {
            () = hold.take() => {}
            _ = want.changed() => {}
        }
    }

    /// Reads back what is registered, and makes it right when somebody has changed it.
    async fn compare(&mut self) -> Result<(), Failure> {
        match self.found().await {
            Ok(Found::Ours) => {}
            Ok(Found::Another) => self.presence = Presence::Taken,
            Ok(Found::Nothing) => self.presence = Presence::Maybe,
            Ok(Found::Differs) if self.altered => {}
            Ok(Found::Differs) => {
                self.register(true).await?;
                self.altered = self.found().await? == Found::Differs;
                let (id, altered) = (&self.parts.service.id, self.altered);
                tracing::warn!(
                    id,
                    altered,
                    "the registration was not as it should be, and was made again"
                );
            }
            // The beat was taken, which is what counts.
            Err(failure) => tracing::debug!(error = %failure, "the registration cannot be read back"),
        }
        Ok(())
    }

    async fn found(&self) -> Result<Found, Failure> {
        let Parts {
            agent, service, life, ..
        } = &self.parts;
        look(&**agent, &service.id, Some(life), Some(service)).await
    }

    /// A beat was taken. Answers how long until the next.
    fn beaten(&mut self, sent: Mono) -> Duration {
        self.failed = 0;
        match self.presence {
            Presence::Yes => self.say(Phase::Passing, None, None),
            Presence::Taken => {
                let why = "another life of this service has registered it since".to_owned();
                self.say(Phase::Taken, Some(why), None);
            }
            // It is missing after all: at once.
            Presence::Maybe | Presence::No => return FIRST_RETRY,
        }
        self.until_beat(sent)
    }

    /// Never later than a beat after the last was sent.
    fn until_beat(&self, sent: Mono) -> Duration {
        let beat = jitter(&*self.parts.clock, self.parts.service.beat().mul_f64(0.95), 5);
        beat.saturating_sub(self.parts.clock.mono().since(sent))
    }
}
