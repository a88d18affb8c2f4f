//! Heartbeats of providers, and whether a provider may act.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::{Group, ProviderId};
use tenure_core::ledger::Provider;
use tenure_core::roster::{Heartbeat, HeartbeatReply, MirrorEntry, Put};
use tenure_core::time::StoreTime;

use super::answer::{Admission, HeartbeatOutcome, Source};
use super::handle::Roster;
use super::mirror_client::MirrorClient;
use crate::batch::BatchSender;
use crate::meters;

impl Roster {
    /// Records a heartbeat. `issued_at` is when the provider's credential was issued. While the mirror is trusted this
    /// is one step of the hot store, batched with other heartbeats, and no statement of the ledger; otherwise it is one
    /// read of the ledger, and one write for many heartbeats every few seconds. It never takes a provider online or
    /// activates it. O(1).
    ///
    /// # Errors
    /// None of its own.
    pub async fn heartbeat(&self, provider: &ProviderId, issued_at: Option<StoreTime>) -> Result<HeartbeatOutcome> {
        self.touch();
        let heard = self.heartbeat_outcome(provider, issued_at).await;
        let (result, recorded) = match &heard {
            Ok(HeartbeatOutcome::Recorded(source)) => ("recorded", source.as_str()),
            Ok(heard) => (heard.as_str(), "none"),
            Err(_) => ("failed", "none"),
        };
        meters::roster_heartbeat(self.state.mirror().label(), result, recorded);
        heard
    }

    /// Whether a provider may act with a credential that was issued at `issued_at`. Check it before every act of a
    /// provider in its own name except a heartbeat, which checks it itself. Changes nothing. O(1).
    ///
    /// # Errors
    /// None of its own.
    pub async fn admit(&self, provider: &ProviderId, issued_at: Option<StoreTime>) -> Result<Admission> {
        self.touch();
        if let Some(Some(seen)) = self.look_in_mirror(provider).await? {
            return Ok(admission(Some(&seen.row), issued_at));
        }
        let row = self.inner.row_now(&self.state, provider).await?;
        Ok(admission(row.as_ref(), issued_at))
    }

    async fn heartbeat_outcome(&self, provider: &ProviderId, issued_at: Option<StoreTime>) -> Result<HeartbeatOutcome> {
        let heartbeat = Heartbeat {
            provider: provider.clone(),
            issued_at,
        };
        if self.state.mirror().is_believed()
            && let Some(heard) = self.heartbeat_in_mirror(&heartbeat).await?
        {
            return Ok(heard);
        }
        self.heartbeat_in_ledger(&heartbeat).await
    }

    /// `None` when the mirror has no trusted answer.
    async fn heartbeat_in_mirror(&self, heartbeat: &Heartbeat) -> Result<Option<HeartbeatOutcome>> {
        let provider = &heartbeat.provider;
        let first = self.send_to_mirror(heartbeat).await;
        match first {
            Some(HeartbeatReply::Unknown) => {
                let Some(Some(seen)) = self.look_in_mirror(provider).await? else {
                    return Ok(None);
                };
                if self.inner.seat_and_follow(&self.state, &[seen.row]).await.is_err() {
                    return Ok(None);
                }
            }
            Some(HeartbeatReply::Absent) => {
                let Some(row) = self.inner.row_now(&self.state, provider).await? else {
                    return Ok(Some(HeartbeatOutcome::Unknown));
                };
                let put = Put::newer(MirrorEntry::Row(row));
                if self.inner.put_rows(&self.state, &[put]).await.is_err() {
                    return Ok(None);
                }
            }
            Some(reply) => return Ok(outcome_of(reply)),
            None => return Ok(None),
        }
        Ok(self.send_to_mirror(heartbeat).await.and_then(outcome_of))
    }

    /// Sends a heartbeat in a batch; `None` without a trusted answer.
    async fn send_to_mirror(&self, heartbeat: &Heartbeat) -> Option<HeartbeatReply> {
        let mirror = self.state.mirror();
        let told = self.state.heartbeats().submit(mirror.group(), heartbeat.clone()).await;
        told.ok().filter(|(_, believed)| *believed).map(|(reply, _)| reply)
    }

    async fn heartbeat_in_ledger(&self, heartbeat: &Heartbeat) -> Result<HeartbeatOutcome> {
        let provider = &heartbeat.provider;
        meters::roster_fallback_read(self.state.mirror().label());
        let row = match self.inner.row_now(&self.state, provider).await {
            Ok(row) => row,
            Err(error) => {
                // Whether the provider may act is unknown, but this outage must not let its tenure lapse.
                self.send_best_effort(heartbeat).await;
                return Err(error);
            }
        };
        match (admission(row.as_ref(), heartbeat.issued_at), row) {
            (Admission::Unknown, _) | (_, None) => return Ok(HeartbeatOutcome::Unknown),
            (Admission::Deactivated, _) => return Ok(HeartbeatOutcome::Deactivated),
            (Admission::Revoked, _) => return Ok(HeartbeatOutcome::Revoked),
            (Admission::Admitted, Some(row)) if row.online.is_none() => return Ok(HeartbeatOutcome::Offline),
            (Admission::Admitted, Some(_)) => {}
        }
        self.state.note(provider, self.inner.clock().mono());
        self.send_best_effort(heartbeat).await;
        Ok(HeartbeatOutcome::Recorded(Source::Ledger))
    }

    /// Sends the heartbeat and ignores the answer: also a mirror that is not trusted ends tenures.
    async fn send_best_effort(&self, heartbeat: &Heartbeat) {
        if !self.state.mirror().is_away() {
            let _ = self.send_to_mirror(heartbeat).await;
        }
    }
}

/// The outcome of a reply of the mirror; `None` when the mirror does not know it.
fn outcome_of(reply: HeartbeatReply) -> Option<HeartbeatOutcome> {
    match reply {
        HeartbeatReply::Recorded => Some(HeartbeatOutcome::Recorded(Source::Mirror)),
        HeartbeatReply::Offline => Some(HeartbeatOutcome::Offline),
        HeartbeatReply::Deactivated => Some(HeartbeatOutcome::Deactivated),
        HeartbeatReply::Revoked => Some(HeartbeatOutcome::Revoked),
        HeartbeatReply::Unknown | HeartbeatReply::Absent => None,
    }
}

/// Whether the provider of this row may act with a credential issued at that time.
fn admission(row: Option<&Provider>, issued_at: Option<StoreTime>) -> Admission {
    let Some(row) = row else { return Admission::Unknown };
    let is_void = |issued: StoreTime| row.revoked_before.is_some_and(|revoked| issued < revoked);
    match issued_at {
        _ if !row.active => Admission::Deactivated,
        Some(issued) if is_void(issued) => Admission::Revoked,
        _ => Admission::Admitted,
    }
}

/// Sends batches of heartbeats to the mirror. Each reply includes whether it is trusted.
pub(crate) struct HeartbeatSender {
    pub(super) mirror: Arc<MirrorClient>,
}

#[async_trait]
impl BatchSender for HeartbeatSender {
    type Item = Heartbeat;
    type Reply = (HeartbeatReply, bool);
    const WHAT: &'static str = "heartbeats";

    async fn send(&self, group: &Group, heartbeats: &[Heartbeat]) -> Result<Vec<Self::Reply>> {
        if self.mirror.is_away() {
            // Heartbeats queued behind a failed batch must not wait for another time-out.
            return Err(Error::unavailable("the mirror is unreachable", Outcome::Unchanged));
        }
        let call = self.mirror.api()?.heartbeat(group, heartbeats);
        let (heard, believed) = self.mirror.read(call, |heard| &heard.mirror).await?;
        Ok(heard.replies.into_iter().map(|reply| (reply, believed)).collect())
    }
}
