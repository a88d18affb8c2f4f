//! Attaches connections for the user.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::call::Parts;
use tenure_core::clock::{Mono, jitter, within};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::TenureId;
use tenure_core::session::{Attach as AttachRequest, AttachOutcome, Attached, check_attaches};
use tenure_core::timeout::Timeout;

use super::connection::Connection;
use super::handles::{ConnectionKey, LiveHandle, LiveHandles};
use super::{Attach, PART, short_answer};
use crate::loops::FLOOR;
use crate::membership::Shared;
use crate::registry::PATIENCE;

/// Attaches connections, each with its own result.
pub(super) async fn attach(shared: &Arc<Shared>, wanted: &[AttachRequest]) -> Result<Vec<Attach>> {
    check_attaches(wanted)?;
    let (mut answers, mut done) = (Vec::with_capacity(wanted.len()), Parts::default());
    for part in wanted.chunks(PART) {
        answers.extend(done.take(attach_part(shared, part).await)?);
    }
    Ok(answers)
}

async fn attach_part(shared: &Arc<Shared>, wanted: &[AttachRequest]) -> Result<Vec<Attach>> {
    let deadline = shared.now() + PATIENCE;
    // Taken before the tenure is read: a new tenure makes everything attached under the old one doubtful.
    let doubts_before = shared.connections.doubt_count();
    let tenure = shared.acting_tenure()?;
    let mut in_flight = AttachCall::begin(shared, wanted, &tenure, deadline).await?;
    let reply = attach_until_answered(shared, &tenure, wanted, &mut in_flight, deadline).await?;
    let doubts_before = Some(doubts_before).filter(|_| !reply.doubted);
    let late = reply.late.filter(|late| *late > shared.now());
    let outcomes = wanted.iter().zip(reply.attached.outcomes);
    let answers = outcomes.map(|(wanted, outcome)| match outcome {
        AttachOutcome::Attached { how, session } => {
            let handle = LiveHandle::new(wanted, &session);
            shared
                .connections
                .insert(&handle, &tenure, session.epoch, late, doubts_before);
            Attach::Attached(Connection::new(shared, handle, how, session))
        }
        AttachOutcome::AliasTaken { by } => Attach::AliasTaken { by },
        AttachOutcome::Gone => Attach::Gone,
        AttachOutcome::Full { of } => Attach::Full { of },
    });
    Ok(answers.collect())
}

/// The reply to an attach, and what is uncertain about it.
struct AttachReply {
    attached: Attached,
    /// The store may have lost it since.
    doubted: bool,
    /// An earlier attempt without a reply may take effect until then.
    late: Option<Mono>,
}

/// Repeats the call until the store answers or the deadline passes. Repeating an attach that took effect without a
/// reply reads its epoch.
async fn attach_until_answered(
    shared: &Shared,
    tenure: &TenureId,
    wanted: &[AttachRequest],
    in_flight: &mut AttachCall<'_>,
    deadline: Mono,
) -> Result<AttachReply> {
    let clock = &*shared.context.clock;
    let attempt = (shared.timing().request_timeout * 2).min(PATIENCE);
    let mut act = shared.act(wanted.len(), attempt);
    let mut late = None;
    loop {
        let bound = attempt.min(deadline.since(shared.now()));
        let given_up_at = shared.now() + bound;
        act.again(given_up_at);
        in_flight.unanswered_until = in_flight.unanswered_until.max(Some(given_up_at));
        let call = shared.call(bound);
        let asked = shared.context.store.attach(&shared.group, tenure, wanted, call);
        let error = match Timeout::change(bound).call(clock, "the store", asked).await {
            Ok(attached) if attached.outcomes.len() == wanted.len() => {
                let doubted = shared.heed_answer(act.answered(attached.before, attached.revision));
                in_flight.unanswered_until = None;
                return Ok(AttachReply {
                    attached,
                    doubted,
                    late,
                });
            }
            Ok(_) => return Err(short_answer()),
            Err(error) => error,
        };
        shared.heed(&error);
        let may_have = error.outcome() == Outcome::Unknown || wanted.len() > tenure_core::sweep::BATCH as usize;
        if may_have {
            late = Some(given_up_at);
        }
        let pause = jitter(clock, attempt / 8, 50).max(FLOOR);
        let may_try = late.is_some() && error.is_unavailable() || error.kind() == ErrorKind::TooLate;
        if !may_try || deadline.since(shared.now()) < pause + Duration::from_millis(1) {
            act.failed(&error, late.is_some());
            in_flight.unanswered_until = late;
            return Err(error);
        }
        clock.sleep(pause).await;
    }
}

/// An attach in flight. Dropped without a reply, its connections are detached once the call can no longer take effect.
struct AttachCall<'a> {
    live: &'a LiveHandles,
    keys: Vec<ConnectionKey>,
    tenure: &'a TenureId,
    /// The call may take effect without a reply until then.
    unanswered_until: Option<Mono>,
}

impl<'a> AttachCall<'a> {
    /// Waits, up to half of the time left, for detaches without an epoch: they could hit the new attach.
    async fn begin(shared: &'a Shared, wanted: &[AttachRequest], tenure: &'a TenureId, deadline: Mono) -> Result<Self> {
        let (live, clock) = (&shared.connections, &*shared.context.clock);
        let keys: Vec<ConnectionKey> = wanted
            .iter()
            .map(|wanted| (wanted.session.clone(), wanted.connection.clone()))
            .collect();
        let patience = deadline.since(shared.now()) / 2;
        let asked = within(clock, patience, async {
            loop {
                let finished = live.detach_finished.notified();
                let Some(unconditional) = live.begin_attach(&keys, shared.now()) else {
                    return;
                };
                tokio::select! { biased; () = finished => {}, () = clock.sleep(unconditional) => {} }
            }
        });
        if asked.await.is_none() {
            return Err(Error::unavailable(
                "an earlier detach of the connection is still in flight, and the store does not answer",
                Outcome::Unchanged,
            ));
        }
        Ok(Self {
            live,
            keys,
            tenure,
            unanswered_until: None,
        })
    }
}

impl Drop for AttachCall<'_> {
    fn drop(&mut self) {
        for key in &self.keys {
            self.live.end_attach(key);
            if let Some(until) = self.unanswered_until {
                self.live.attach_unanswered(key, self.tenure, until);
            }
        }
        self.live.work.notify_one();
    }
}

impl LiveHandles {
    /// Registers an attach; or returns for how long a detach without an epoch may still take effect.
    fn begin_attach(&self, keys: &[ConnectionKey], now: Mono) -> Option<Duration> {
        let mut state = self.state();
        let unconditional_until = |key| state.entries.get(key)?.pending_detach.as_ref()?.unconditional_until;
        let unconditional = keys.iter().filter_map(unconditional_until).max();
        if let Some(wait) = unconditional
            .map(|until| until.since(now))
            .filter(|wait| !wait.is_zero())
        {
            return Some(wait);
        }
        for key in keys {
            *state.attaching.entry(key.clone()).or_default() += 1;
        }
        None
    }

    fn end_attach(&self, key: &ConnectionKey) {
        let mut state = self.state();
        if let Some(in_flight) = state.attaching.get_mut(key) {
            *in_flight -= 1;
            if *in_flight == 0 {
                state.attaching.remove(key);
            }
        }
    }
}
