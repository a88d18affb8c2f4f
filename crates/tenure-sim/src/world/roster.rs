//! The roster of a run: its ledger, the checks on what it lets in, and the convergence of mirror and ledger.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Group, PageRequest, RosterName};
use tenure_core::roster::{RosterMirror, Standing, group_of};

use super::{Plan, World};
use crate::board::{Board, LetIn};
use crate::chance::Chance;
use crate::check::{Checked, must};
use crate::ledger::{LedgerMachine, LedgerServing};
use crate::program::ROSTER;
use crate::server::poll_once;
use crate::time::WorldClock;

/// A change by a process that cannot reach the mirror is there after this time, if another one reaches both.
const THROUGH_OTHERS: Duration = Duration::from_secs(3);

/// The roster of a run.
pub(super) struct RosterWorld {
    name: RosterName,
    group: Group,
    ledger: Arc<LedgerMachine>,
    board: Arc<Board>,
}

impl RosterWorld {
    pub(super) fn new(clock: &WorldClock, plan: &Plan) -> tenure::Result<Self> {
        let name = RosterName::new(ROSTER)?;
        Ok(Self {
            group: group_of(&name)?,
            ledger: LedgerMachine::new(clock, Chance::new(plan.seed, 4), &name, plan.broken),
            board: Arc::new(Board::new(clock)),
            name,
        })
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    pub(super) fn parts(&self) -> (Arc<LedgerMachine>, Arc<Board>) {
        (Arc::clone(&self.ledger), Arc::clone(&self.board))
    }
}

impl World {
    /// Sets whether the ledger serves. Returns whether there is one.
    pub(super) fn disturb_ledger(&mut self, serving: LedgerServing) -> bool {
        if let Some(roster) = &self.roster {
            roster.ledger.set_serving(serving);
        }
        self.roster.is_some()
    }

    /// The ledger has broken no rule, has followed only tenures that ended, and no process has let in a provider that
    /// was deactivated.
    pub(super) fn watch_roster(&self) -> Checked {
        let Some(roster) = &self.roster else { return Ok(()) };
        if let Some(violation) = roster.ledger.violation() {
            return Err(violation);
        }
        for tenure in roster.ledger.take_followed() {
            let alive = self.providers.shadow.current(&tenure).is_some();
            must(
                !alive || self.providers.has_lost_data(),
                "the ledger follows only tenures that ended",
                || tenure.to_string(),
            )?;
        }
        roster
            .board
            .take_let_in()
            .iter()
            .try_for_each(|let_in| self.excuse(roster, let_in))
    }

    /// Another process may have let it in until the change has reached the mirror.
    fn excuse(&self, roster: &RosterWorld, let_in: &LetIn) -> Checked {
        let storm = if self.storming { self.clock.now() } else { self.storm };
        let store = self.providers.outages.last(self.clock.now());
        let others = self.nodes.iter().map(super::Node::trouble).max().unwrap_or_default();
        let calm_since = let_in
            .answered
            .max(others)
            .max(store)
            .max(storm)
            .max(roster.ledger.trouble());
        // The ledger itself decides about these.
        let by_ledger = matches!(let_in.how, "coming online" | "a reserve");
        let late = !let_in.same_process && !by_ledger && let_in.began.since(calm_since) < THROUGH_OTHERS;
        must(late, "a deactivated provider is let in nowhere", || {
            format!("{let_in:?}; calm since {calm_since}")
        })
    }

    /// Mirror and ledger have the same rows, and no provider is online in the ledger under an ended tenure.
    pub(super) fn roster_agrees(&self) -> Checked {
        let Some(roster) = &self.roster else { return Ok(()) };
        let dirty = roster.ledger.dirty();
        must(dirty == 0, "every row reaches the mirror once the faults stop", || {
            format!("{dirty} rows are in the outbox")
        })?;
        let page = PageRequest {
            after: None,
            limit: 1_000,
        };
        let rows = poll_once(self.server.truth().rows(&roster.group, &page));
        let rows = rows.map(|rows| rows.rows).unwrap_or_default();
        let truth = roster.ledger.rows(&roster.name);
        must(
            rows.len() == truth.len(),
            "mirror and ledger have the same providers once the faults stop",
            || format!("{rows:?}, not {truth:?}"),
        )?;
        for (mirrored, row) in rows.iter().zip(&truth) {
            let mut seen = mirrored.row.clone();
            seen.last_heartbeat_at = row.last_heartbeat_at;
            must(seen == *row, "mirror and ledger agree once the faults stop", || {
                format!("{mirrored:?}, not {row:?}")
            })?;
            let expected = match row.online {
                Some(_) => Standing::Alive,
                None => Standing::Offline,
            };
            must(
                mirrored.standing == expected,
                "the ledger has followed every end once the faults stop",
                || format!("{mirrored:?}"),
            )?;
        }
        Ok(())
    }
}
