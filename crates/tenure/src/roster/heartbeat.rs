//! Heartbeats, and whether a provider may act at all.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::{Group, ProviderId};
use tenure_core::ledger::Provider;
use tenure_core::roster::{Entry, Heartbeat, HeartbeatReply, Put};
use tenure_core::time::StoreTime;

use super::answer::{Admission, Heard, Source};
use super::handle::Roster;
use super::line::Line;
use crate::batch::Gathered;
use crate::meters;

impl Roster {
    /// A provider was heard of. `issued_at` is when what it showed to be let in was issued. While the mirror is believed
    /// this is one step of the hot store, shared with other heartbeats, and no statement of the ledger; otherwise one read
    /// of the ledger, and a write for many every few seconds. Never takes online, never activates. O(1).
    ///
    /// # Errors
    /// None of its own.
    pub async fn heartbeat(&self, provider: &ProviderId, issued_at: Option<StoreTime>) -> Result<Heard> {
        self.touch();
        let heard = self.hear(provider, issued_at).await;
        let (result, recorded) = match &heard {
            Ok(Heard::Recorded(source)) => ("recorded", source.as_str()),
            Ok(heard) => (heard.as_str(), "none"),
            Err(_) => ("failed", "none"),
        };
        meters::roster_heartbeat(self.one.line().label(), result, recorded);
        heard
    }

    /// Whether a provider may act on what it showed, which was issued then: to be asked before everything that a provider
    /// does in its own name, but for a heartbeat, which asks by itself. Changes nothing. O(1).
    ///
    /// # Errors
    /// None of its own.
    pub async fn admit(&self, provider: &ProviderId, issued_at: Option<StoreTime>) -> Result<Admission> {
        self.touch();
        if let Some(Some(seen)) = self.look_in_mirror(provider).await? {
            return Ok(admission(Some(&seen.row), issued_at));
        }
        let row = self.inner.row_now(&self.one, provider).await?;
        Ok(admission(row.as_ref(), issued_at))
    }

    async fn hear(&self, provider: &ProviderId, issued_at: Option<StoreTime>) -> Result<Heard> {
        let heartbeat = Heartbeat {
            provider: provider.clone(),
            issued_at,
        };
        if self.one.line().is_believed()
            && let Some(heard) = self.hear_in_mirror(&heartbeat).await?
        {
            return Ok(heard);
        }
        self.hear_in_ledger(&heartbeat).await
    }

    /// `None` when the mirror cannot tell.
    async fn hear_in_mirror(&self, heartbeat: &Heartbeat) -> Result<Option<Heard>> {
        let provider = &heartbeat.provider;
        let first = self.tell_mirror(heartbeat).await;
        match first {
            Some(HeartbeatReply::Unknown) => {
                let Some(Some(seen)) = self.look_in_mirror(provider).await? else {
                    return Ok(None);
                };
                if self.inner.seat_and_follow(&self.one, &[seen.row]).await.is_err() {
                    return Ok(None);
                }
            }
            Some(HeartbeatReply::Absent) => {
                let Some(row) = self.inner.row_now(&self.one, provider).await? else {
                    return Ok(Some(Heard::Unknown));
                };
                let put = Put::newer(Entry::Row(row));
                if self.inner.put_rows(&self.one, &[put]).await.is_err() {
                    return Ok(None);
                }
            }
            Some(reply) => return Ok(said(reply)),
            None => return Ok(None),
        }
        Ok(self.tell_mirror(heartbeat).await.and_then(said))
    }

    /// Sends a heartbeat with others; `None` when there is no answer to be believed.
    async fn tell_mirror(&self, heartbeat: &Heartbeat) -> Option<HeartbeatReply> {
        let line = self.one.line();
        let told = self.one.heartbeats().ask(line.group(), heartbeat.clone()).await;
        told.ok().filter(|(_, believed)| *believed).map(|(reply, _)| reply)
    }

    async fn hear_in_ledger(&self, heartbeat: &Heartbeat) -> Result<Heard> {
        let provider = &heartbeat.provider;
        meters::roster_fallback_read(self.one.line().label());
        let row = match self.inner.row_now(&self.one, provider).await {
            Ok(row) => row,
            Err(error) => {
                // Nobody can say now whether it may go on. Whatever comes of that, it must not lapse for it.
                self.tell_whoever_is_there(heartbeat).await;
                return Err(error);
            }
        };
        match (admission(row.as_ref(), heartbeat.issued_at), row) {
            (Admission::Unknown, _) | (_, None) => return Ok(Heard::Unknown),
            (Admission::Deactivated, _) => return Ok(Heard::Deactivated),
            (Admission::Revoked, _) => return Ok(Heard::Revoked),
            (Admission::Welcome, Some(row)) if row.online.is_none() => return Ok(Heard::Offline),
            (Admission::Welcome, Some(_)) => {}
        }
        self.one.note(provider, self.inner.clock().mono());
        self.tell_whoever_is_there(heartbeat).await;
        Ok(Heard::Recorded(Source::Ledger))
    }

    /// A mirror that is not to be believed ends tenures all the same. What it answers does not matter.
    async fn tell_whoever_is_there(&self, heartbeat: &Heartbeat) {
        if !self.one.line().is_away() {
            let _ = self.tell_mirror(heartbeat).await;
        }
    }
}

/// What a reply of the mirror means; `None` when it does not know.
fn said(reply: HeartbeatReply) -> Option<Heard> {
    match reply {
        HeartbeatReply::Recorded => Some(Heard::Recorded(Source::Mirror)),
        HeartbeatReply::Offline => Some(Heard::Offline),
        HeartbeatReply::Deactivated => Some(Heard::Deactivated),
        HeartbeatReply::Revoked => Some(Heard::Revoked),
        HeartbeatReply::Unknown | HeartbeatReply::Absent => None,
    }
}

/// Whether who showed something that was issued then may act, by its row.
fn admission(row: Option<&Provider>, issued_at: Option<StoreTime>) -> Admission {
    let Some(row) = row else { return Admission::Unknown };
    let is_void = |issued: StoreTime| row.revoked_before.is_some_and(|revoked| issued < revoked);
    match issued_at {
        _ if !row.active => Admission::Deactivated,
        Some(issued) if is_void(issued) => Admission::Revoked,
        _ => Admission::Welcome,
    }
}

/// Heartbeats on their way to the mirror. Each answer says as well whether it is to be believed.
pub(crate) struct Hearts {
    pub(super) line: Arc<Line>,
}

#[async_trait]
impl Gathered for Hearts {
    type Item = Heartbeat;
    type Answer = (HeartbeatReply, bool);
    const WHAT: &'static str = "heartbeats";

    async fn send(&self, group: &Group, heartbeats: &[Heartbeat]) -> Result<Vec<Self::Answer>> {
        if self.line.is_away() {
            // Those that gathered behind a batch that failed must not wait for as long as that did.
            return Err(Error::unavailable("the mirror does not serve", Outcome::Unchanged));
        }
        let call = self.line.mirror()?.heartbeat(group, heartbeats);
        let (heard, believed) = self.line.read(call, |heard| &heard.stamp).await?;
        Ok(heard.replies.into_iter().map(|reply| (reply, believed)).collect())
    }
}
