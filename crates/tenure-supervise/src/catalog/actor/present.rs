//! The service is wanted: registers it if it is missing, and beats.

use std::time::Duration;

use tenure_core::clock::{Mono, jitter};

use super::{Actor, FIRST_RETRY, HOLDING, Parts, Presence};
use crate::catalog::journal::JournalEntry;
use crate::catalog::remove::{RegistrationMatch, compare};
use crate::catalog::{Failure, Phase};

impl Actor {
    /// Registers the service if it is missing, and sends a beat. Returns the time until the next beat.
    pub(super) async fn keep(&mut self) -> Result<Duration, Failure> {
        let sent = self.parts.clock.mono();
        if self.presence == Presence::Taken {
            match self.lookup().await? {
                RegistrationMatch::Another => return Ok(self.until_beat(sent)),
                RegistrationMatch::Ours | RegistrationMatch::Differs | RegistrationMatch::Missing => {
                    self.presence = Presence::Maybe
                }
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
                "the agent does not know the check; registering again"
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
            let entry = JournalEntry {
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
        let before = self.presence;
        if self.presence != Presence::Yes {
            self.presence = Presence::Maybe;
        }
        // From here on it may be registered, whatever the result of the call.
        self.in_flight = true;
        let Parts {
            agent, service, life, ..
        } = &self.parts;
        let done = agent.register(service, life, passing).await;
        if done.is_ok() {
            self.in_flight = false;
            // It replaced any leftover of an earlier life with this id.
            self.replaced().await;
        } else if matches!(&done, Err(failure) if failure.has_no_effect()) {
            // So an agent that never was there has nothing to remove, and a stop does not wait for it.
            self.presence = before;
        }
        done
    }

    /// Attaches the session before the registration is made. Waits for the store once per desired state, so that a
    /// registration that the agent lost is restored immediately.
    async fn hold_first(&mut self) {
        let Some(hold) = &self.parts.hold else { return };
        if std::mem::replace(&mut self.waited, true) {
            return self.hold().await;
        }
        let (mut want, bound) = (self.parts.want.clone(), self.parts.service.beat().min(HOLDING));
        tokio::select! {
            () = hold.attach_first(bound) => {}
            _ = want.changed() => {}
        }
    }

    /// Attaches the session, if there is a store. Cancelled when the desired state changes: a hung store must not delay
    /// the deregistration.
    async fn hold(&self) {
        let Some(hold) = &self.parts.hold else { return };
        let mut want = self.parts.want.clone();
        tokio::select! {
            () = hold.attach() => {}
            _ = want.changed() => {}
        }
    }

    /// Reads the registration back, and registers again if it was changed.
    async fn compare(&mut self) -> Result<(), Failure> {
        match self.lookup().await {
            Ok(RegistrationMatch::Ours) => {}
            Ok(RegistrationMatch::Another) => self.presence = Presence::Taken,
            Ok(RegistrationMatch::Missing) => self.presence = Presence::Maybe,
            Ok(RegistrationMatch::Differs) if self.altered => {}
            Ok(RegistrationMatch::Differs) => {
                self.register(true).await?;
                self.altered = self.lookup().await? == RegistrationMatch::Differs;
                let (id, altered) = (&self.parts.service.id, self.altered);
                tracing::warn!(
                    id,
                    altered,
                    "the registration differs from the desired one; registered again"
                );
            }
            // The beat succeeded, which is sufficient.
            Err(failure) => tracing::debug!(error = %failure, "cannot read the registration back"),
        }
        Ok(())
    }

    async fn lookup(&self) -> Result<RegistrationMatch, Failure> {
        let Parts {
            agent, service, life, ..
        } = &self.parts;
        compare(&**agent, &service.id, Some(life), Some(service)).await
    }

    /// Records a successful beat. Returns the time until the next one.
    fn beaten(&mut self, sent: Mono) -> Duration {
        self.failed = 0;
        match self.presence {
            Presence::Yes => self.say(Phase::Passing, None, None),
            Presence::Taken => {
                let why = "another life of this service has registered the id since".to_owned();
                self.say(Phase::Taken, Some(why), None);
            }
            // The registration is missing after all: retry immediately.
            Presence::Maybe | Presence::No => return FIRST_RETRY,
        }
        self.until_beat(sent)
    }

    /// Never later than one beat after the last one was sent.
    fn until_beat(&self, sent: Mono) -> Duration {
        let beat = jitter(&*self.parts.clock, self.parts.service.beat().mul_f64(0.95), 5);
        beat.saturating_sub(self.parts.clock.mono().since(sent))
    }
}
