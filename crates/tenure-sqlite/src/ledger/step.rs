//! One step on one roster, as the writer runs it.

use rusqlite::{Connection, params};
use tenure_core::ledger::Reason;
use tenure_core::{RosterName, StoreTime};

use crate::error::Cause;
use crate::sql::{instant, statements};
use crate::writer::Bookkeeping;

statements! { "ledger/step.sql":
    BECAUSE = "because",
    OVER = "over",
}

/// What the writer remembers of a transaction: hardly anything, since every step decides on what the file says.
#[derive(Debug, Default)]
pub(super) struct LedgerBooks {
    /// A step said why it changes rows, which is to be taken back before the commit: what comes then is other programs'.
    has_said: bool,
}

impl Bookkeeping for LedgerBooks {
    fn flush(&mut self, sql: &Connection) -> Result<(), Cause> {
        if std::mem::take(&mut self.has_said) {
            sql.prepare_cached(OVER)?.execute([])?;
        }
        Ok(())
    }

    fn roll_back(&mut self) {
        self.has_said = false;
    }
}

/// A step in progress.
pub(super) struct Step<'a> {
    pub(super) sql: &'a Connection,
    pub(super) roster: &'a str,
    /// The ledger's time of the step.
    pub(super) now: StoreTime,
    books: &'a mut LedgerBooks,
    /// What the step said last of why it changes rows.
    said: Option<Reason>,
}

impl<'a> Step<'a> {
    pub(super) fn new(sql: &'a Connection, roster: &'a RosterName, now: StoreTime, books: &'a mut LedgerBooks) -> Self {
        Self {
            sql,
            roster: roster.as_str(),
            now,
            books,
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
        self.books.has_said = true;
        self.said = Some(reason);
        Ok(())
    }
}
