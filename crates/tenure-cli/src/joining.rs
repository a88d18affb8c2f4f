//! The join of a wrapper, whose daemon may start later than the wrapper itself.

use std::time::Duration;

use tenure::member_id;
use tenure::membership::{JoinOptions, Membership};
use tenure_core::clock::{SystemClock, jitter};
use tenure_core::error::Error;
use tenure_core::id::Group;
use tenure_core::time::show_duration;
use tenure_supervise::signals::Signals;

use crate::connect::{self, Connected};
use crate::exit::{say, say_how_to_start};

/// The first pause between two attempts, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));

/// How to join.
pub(crate) struct Joining<'a> {
    pub(crate) url: &'a str,
    pub(crate) max_ttl: Duration,
    pub(crate) group: &'a Group,
    pub(crate) options: JoinOptions,
    /// How long to try while the store cannot be reached; `None`: for as long as it takes.
    pub(crate) patience: Option<Duration>,
}

/// The result of a join.
pub(crate) enum Joined {
    Member(Connected, Membership),
    /// A signal ended the attempts, with this exit code.
    Signal(u8),
}

impl Joining<'_> {
    /// Joins as soon as the store can be reached. Says once that it tries again, with the reason: a wrong address looks like
    /// a daemon that has not started yet.
    ///
    /// # Errors
    /// Those of connecting and joining. That the store cannot be reached only when there is no patience left.
    pub(crate) async fn run(mut self, signals: &mut Signals) -> anyhow::Result<Joined> {
        let clock = SystemClock::shared();
        // Each attempt joins as the same member: a join whose answer was lost is superseded.
        if self.options.member.is_none() {
            self.options.member = Some(member_id::generated(&*clock)?);
        }
        let (began, mut pause, mut is_said, mut connected) = (clock.mono(), PAUSES.0, false, None);
        loop {
            let error = match self.attempt(&mut connected).await {
                Ok((connected, membership)) => return Ok(Joined::Member(connected, membership)),
                Err(error) => error,
            };
            let left = self
                .patience
                .map(|patience| patience.saturating_sub(clock.mono().since(began)));
            if !is_away(&error) || left.is_some_and(|left| left.is_zero()) {
                return Err(error);
            }
            if !std::mem::replace(&mut is_said, true) {
                let limit = self
                    .patience
                    .map(|patience| format!(" for {}", show_duration(patience)));
                say(format_args!("{error:#}; trying again{}", limit.unwrap_or_default()));
                say_how_to_start(&error);
            }
            let pausing = clock.sleep(left.unwrap_or(pause).min(jitter(&*clock, pause, 25)));
            tokio::select! {
                biased;
                code = signals.asked_to_end() => return Ok(Joined::Signal(code)),
                () = pausing => {}
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Keeps the connection for the next attempt: it has said in the log that the daemon is away.
    async fn attempt(&self, kept: &mut Option<Connected>) -> anyhow::Result<(Connected, Membership)> {
        let connected = match kept.take() {
            Some(connected) => connected,
            None => connect::for_membership(self.url, self.max_ttl).await?,
        };
        let group = connected.tenure.group(self.group.as_str())?;
        match group.join(self.options.clone()).await {
            Ok(membership) => Ok((connected, membership)),
            Err(error) => {
                *kept = Some(connected);
                Err(error.into())
            }
        }
    }
}

/// Whether the store cannot be reached, or cannot serve. Anything else no other attempt changes.
fn is_away(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Error>().is_some_and(Error::is_unavailable)
}
