//! The live sessions of a group as the targets of a fleet.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::jitter;
use tenure_core::error::Result;
use tenure_core::event::EventKind;
use tenure_core::id::{Group, LeaseName};
use tenure_core::session::{Session, SessionState};
use tenure_core::store::{MAX_PAGE, PageRequest};
use tenure_core::target::{TargetSpec, text_of, text_pauses};
use tenure_core::time::micros;
use tokio::sync::watch;

use super::calls::listen;
use super::source::{TargetSource, check_count};
use crate::client::Context;
use crate::group::GroupHandle;

/// The event types that change which sessions are live.
const KINDS: [EventKind; 4] = [
    EventKind::SessionCreated,
    EventKind::SessionResumed,
    EventKind::SessionDisconnected,
    EventKind::SessionsRepaired,
];
/// Longest wait for events.
const WAIT: Duration = Duration::from_secs(10);
/// The wait when sessions are listed anyway because of a paused field: no event reports changes of session data.
const WAIT_FOR_DATA: Duration = Duration::from_millis(500);
/// Shortest and longest pause between two such listings.
const RESTS: (Duration, Duration) = (Duration::from_millis(200), WAIT);
/// Listings, except those of the discovery, take at most one part in this many of the time.
const SHARE: u32 = 5;
/// First and longest pause after a failed call.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The active sessions of a group. Each is a target of weight 1, named by the session id. A session without a
/// connection under a living tenure is not a target: its work ends, and starts again when the session is resumed.
///
/// The fleet follows sessions by the events of their group, which need not be the group of the fleet. It notices new,
/// ended and resumed sessions and changes of [`LiveSessions::paused_field`] within a second, if a listing of all live
/// sessions takes less than 50 ms. Slower listings run less often: listings take at most a fifth of the time, plus one
/// per discovery ([`FleetSettings::discovery`](super::FleetSettings::discovery)).
///
/// ```
/// use tenure::fleet::{Assignment, Fleet, LiveSessions};
/// # use tenure::{JoinOptions, Tenure};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// # let tenure = Tenure::connect("memory:").await?;
/// # let membership = tenure.group("pollers")?.join(JoinOptions::named("node-1")?).await?;
/// // Front-ends keep client sessions in the group chat; this node only processes them.
/// let chat = tenure.group("chat")?;
/// let fleet = Fleet::builder(&membership)
///     .targets(LiveSessions::of(&chat).paused_field("muted"))
///     .start(|session: Assignment| async move {
///         while session.next_cycle().await {
///             // Fetch what is new for the client of session.target().
///             session.rest(std::time::Duration::from_secs(1)).await;
///         }
///     })?;
/// # fleet.shut_down().await;
/// # membership.leave().await?;
/// # Ok(())
/// # }
/// ```
pub struct LiveSessions {
    context: Context,
    group: Group,
    paused_field: Option<String>,
    /// How long the last listing took, in microseconds.
    took: Arc<AtomicU64>,
}

impl fmt::Debug for LiveSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveSessions({})", self.group)
    }
}

impl LiveSessions {
    /// The live sessions of a group, which need not be the group of the fleet.
    #[must_use]
    pub fn of(group: &GroupHandle) -> Self {
        Self {
            context: group.context().clone(),
            group: group.name().clone(),
            paused_field: None,
            took: Arc::default(),
        }
    }

    /// Pauses a session while this field of its data is present and not `null`, `false`, `0`, `no`, `off` or empty. The
    /// live sessions are then listed about every second, because no event reports changes of data.
    #[must_use]
    pub fn paused_field(self, field: &str) -> Self {
        Self {
            paused_field: Some(field.to_owned()),
            ..self
        }
    }

    /// Session ids and target names follow the same rule, so each session has a target.
    fn target(&self, session: &Session) -> Option<(LeaseName, TargetSpec)> {
        let value = self.paused_field.as_ref().and_then(|field| session.data.get(field));
        let spec = TargetSpec {
            paused: value.is_some_and(|value| text_pauses(text_of(value).as_bytes())),
            ..TargetSpec::default()
        };
        Some((LeaseName::new(session.session.as_str()).ok()?, spec))
    }
}

#[async_trait]
impl TargetSource for LiveSessions {
    async fn targets(&self) -> Result<BTreeMap<LeaseName, TargetSpec>> {
        let (store, clock) = (&self.context.store, &*self.context.clock);
        let begun = clock.mono();
        let (mut targets, mut after) = (BTreeMap::new(), None);
        loop {
            let request = PageRequest::new(after, MAX_PAGE)?;
            let page = store.sessions(&self.group, Some(SessionState::Active), &request);
            let page = self.context.read(page).await?;
            targets.extend(page.items.iter().filter_map(|session| self.target(session)));
            after = page.next;
            if after.is_none() {
                self.took.store(micros(clock.mono().since(begun)), Ordering::Relaxed);
                return Ok(targets);
            }
            check_count(targets.len())?;
        }
    }

    fn changes(&self) -> Option<watch::Receiver<()>> {
        let (changed, receiver) = watch::channel(());
        let follower = Follower {
            context: self.context.clone(),
            group: self.group.clone(),
            reads_data: self.paused_field.is_some(),
            took: Arc::clone(&self.took),
        };
        self.context.runtime.spawn(async move {
            tokio::select! {
                () = changed.closed() => {}
                () = follower.follow(&changed) => {}
            }
        });
        Some(receiver)
    }
}

/// Notifies the fleet when to list the live sessions.
struct Follower {
    context: Context,
    group: Group,
    reads_data: bool,
    took: Arc<AtomicU64>,
}

impl Follower {
    /// Reports each change of the live sessions. While events cannot be read the fleet finds changes by polling.
    async fn follow(&self, changed: &watch::Sender<()>) {
        let wait = if self.reads_data { WAIT_FOR_DATA } else { WAIT };
        let (mut heard, mut failed) = (None, 0u32);
        loop {
            let rest = match listen(&self.context, &self.group, heard, wait, &KINDS).await {
                Ok(news) => {
                    if self.reads_data || news.missed || !news.events.is_empty() {
                        changed.send_replace(());
                    }
                    (heard, failed) = (Some(news.last), 0);
                    rest_after(Duration::from_micros(self.took.load(Ordering::Relaxed)))
                }
                Err(error) => {
                    if failed == 0 {
                        let (group, error) = (&self.group, error.chain());
                        tracing::warn!(%group, error, "session events cannot be read; retrying");
                    }
                    failed = failed.saturating_add(1);
                    self.pause_after(failed)
                }
            };
            self.context.clock.sleep(rest).await;
        }
    }

    fn pause_after(&self, failed: u32) -> Duration {
        let (first, longest) = PAUSES;
        let doubled = first.saturating_mul(1 << (failed - 1).min(8));
        jitter(&*self.context.clock, doubled.min(longest), 25)
    }
}

/// Limits the share of time spent on listing sessions when many clients come and go.
fn rest_after(took: Duration) -> Duration {
    let (shortest, longest) = RESTS;
    (took * (SHARE - 1)).clamp(shortest, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_listings_run_less_often() {
        let rest = |ms| rest_after(Duration::from_millis(ms));
        assert_eq!(rest(1), Duration::from_millis(200));
        assert_eq!(rest(250), Duration::from_secs(1));
        assert_eq!(rest(60_000), Duration::from_secs(10));
    }
}
