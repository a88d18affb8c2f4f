//! One step on one roster, as the writer runs it.

use rusqlite::{Connection, params};
use tenure_core::ledger::Reason;
use tenure_core::{RosterName, StoreTime};

use crate::error::Cause;
use crate::sql::{instant, statements};
use crate::writer::Transaction;

statements! { "ledger/step.sql":
    BECAUSE = "because",
}

/// A step in progress.
pub(super) struct Step<'a> {
    pub(super) sql: &'a Connection,
    pub(super) roster: &'a str,
    /// The ledger's time of the step.
    pub(super) now: StoreTime,
    transaction: &'a mut Transaction,
    /// What the step said last of why it changes rows.
    said: Option<Reason>,
}

impl<'a> Step<'a> {
    pub(super) fn new(
        sql: &'a Connection,
        roster: &'a RosterName,
        now: StoreTime,
        transaction: &'a mut Transaction,
    ) -> Self {
        Self {
            sql,
            roster: roster.as_str(),
            now,
            transaction,
            said: None,
        }
    }

    /// Says when and why what follows is done, for the triggers. To be called before a step changes rows, and only then:
    /// a step that changes nothing costs no write.
    pub(super) fn because(&mut self, reason: Reason) -> Result<(), Cause> {
        if self.said == Some(reason) {
            return Ok(());
        }
        let follows = matches!(reason, Reason::Ended(_));
        let mut say = self.sql.prepare_cached(BECAUSE)?;
        say.execute(params![instant(self.now), reason.as_str(), follows])?;
        self.transaction.has_reason = true;
        self.said = Some(reason);
        Ok(())
    }
}
