//! The part of a program that serves rosters: a provider with its heartbeats, an operator, and a client that reserves.

use std::sync::Arc;

use tenure::roster::{Admission, HeartbeatOutcome, Online, Reservation};
use tenure::{Move, NewEngagement, PageRequest, ProviderId, ProviderSpec, Roster, Rosters, Status};
use tenure_core::ledger::Capacity;

use super::Program;
use crate::board::Board;

/// The roster of all programs.
pub const ROSTER: &str = "desk";

/// What a program needs for rosters.
#[derive(Debug, Clone)]
pub struct RosterPart {
    /// The service of this process.
    pub rosters: Rosters,
    /// What operators were answered.
    pub board: Arc<Board>,
    /// The machine, and a number of this process.
    pub node: usize,
    /// The number of this process.
    pub process: u64,
    /// The number of providers.
    pub providers: u64,
}

impl RosterPart {
    fn shown(&self, look: &crate::board::Look, provider: &ProviderId, how: &'static str) {
        self.board.shown(look, provider, self.node, self.process, how);
    }
}

impl Program {
    /// Performs one act on the roster, after the heartbeat of the own provider.
    pub(super) async fn work_in_roster(&mut self, part: &RosterPart) {
        let Ok(roster) = tenure::RosterName::new(ROSTER).and_then(|name| part.rosters.roster(&name)) else {
            return;
        };
        let Ok(own) = ProviderId::new(format!("p-{}", self.habits.name)) else {
            return;
        };
        self.heartbeat(part, &roster, &own).await;
        if self.view.is_calm() {
            return;
        }
        match self.chance.below(100) {
            0..12 => self.go_online(part, &roster, &own).await,
            12..16 => drop(roster.offline(&own).await),
            16..22 => self.operate(part, &roster).await,
            22..40 => self.reserve(part, &roster).await,
            40..54 => self.end_engagement(&roster).await,
            54..58 => self.describe(&roster, &own).await,
            58..82 => self.read_roster(part, &roster).await,
            _ => {}
        }
    }

    async fn heartbeat(&mut self, part: &RosterPart, roster: &Roster, own: &ProviderId) {
        let look = part.board.look();
        match roster.heartbeat(own, None).await {
            Ok(HeartbeatOutcome::Recorded(_)) => part.shown(&look, own, "a heartbeat"),
            Ok(HeartbeatOutcome::Unknown) => self.describe(roster, own).await,
            // Also when it was taken offline: the person presses the button again.
            Ok(HeartbeatOutcome::Offline) if self.view.is_calm() || self.chance.happens(400) => {
                self.go_online(part, roster, own).await;
            }
            _ => {}
        }
    }

    async fn go_online(&mut self, part: &RosterPart, roster: &Roster, own: &ProviderId) {
        let look = part.board.look();
        if let Ok(Online::Done(written)) = roster.online(own).await
            && written.value.online.is_some()
        {
            part.shown(&look, own, "coming online");
        }
    }

    async fn describe(&mut self, roster: &Roster, own: &ProviderId) {
        let spec = ProviderSpec {
            display_name: None,
            capacity: Capacity::Own(1 + u32::try_from(self.chance.below(3)).unwrap_or(0)),
        };
        drop(roster.put_provider(own, &spec).await);
    }

    fn any_provider(&mut self, part: &RosterPart) -> Option<ProviderId> {
        ProviderId::new(format!("p-n{}", self.chance.below(part.providers))).ok()
    }

    /// An operator deactivates a provider, or activates it.
    async fn operate(&mut self, part: &RosterPart, roster: &Roster) {
        let Some(provider) = self.any_provider(part) else {
            return;
        };
        if self.chance.happens(400) {
            let before = part.board.deactivating(&provider);
            if roster.deactivate(&provider).await.is_ok() {
                part.board.deactivated(&provider, before, part.process);
            }
        } else {
            part.board.activating(&provider);
            if roster.activate(&provider).await.is_ok() {
                part.board.activated(&provider);
            }
        }
    }

    /// A client reserves a provider.
    async fn reserve(&mut self, part: &RosterPart, roster: &Roster) {
        let Ok(name) = roster.name_engagement() else { return };
        let mut new = NewEngagement::new(name.clone());
        new.expires_in = self.chance.happens(500).then_some(super::MS * 4_000);
        let look = part.board.look();
        let reserved = roster.reserve(&new).await;
        if let Ok(Reservation::Reserved(written)) = &reserved
            && let Some(provider) = &written.value.engagement.provider
        {
            part.shown(&look, provider, "a reserve");
        }
        // Also without an answer: it may have been made.
        self.engagements.push(name);
    }

    async fn end_engagement(&mut self, roster: &Roster) {
        let Some(name) = self.engagements.pop() else { return };
        let to = Move {
            status: Some(Status::Ended),
            ..Move::default()
        };
        if roster.move_engagement(&name, &to).await.is_err() && self.engagements.len() < 20 {
            self.engagements.push(name);
        }
    }

    async fn read_roster(&mut self, part: &RosterPart, roster: &Roster) {
        let Some(provider) = self.any_provider(part) else {
            return;
        };
        let look = part.board.look();
        match self.chance.below(6) {
            0..2 => {
                let available = roster.available(100).await.map(|read| read.value).unwrap_or_default();
                for candidate in available {
                    part.shown(&look, &candidate.provider, "the list of available providers");
                }
            }
            2 => {
                if roster.is_reachable(&provider).await.is_ok_and(|read| read.value) {
                    part.shown(&look, &provider, "a look-up");
                }
            }
            3 => {
                if roster
                    .admit(&provider, None)
                    .await
                    .is_ok_and(|admitted| admitted == Admission::Admitted)
                {
                    part.shown(&look, &provider, "an admission");
                }
            }
            4 => drop(roster.availability().await),
            _ => drop(roster.providers(None, &PageRequest::default()).await),
        }
    }
}
