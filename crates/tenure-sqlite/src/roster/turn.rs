//! Turns at tasks that one instance does for all, and the mark that everything has arrived.

use rusqlite::params;
use tenure_core::StoreTime;
use tenure_core::roster::{Task, Turn, TurnRequest};

use crate::error::Cause;
use crate::sql::{instant, read_instant_or_none, statements};
use crate::step::{Answer, Step};

statements! { "roster.sql":
    TURN = "turn",
    SAVE_TURN = "save_turn",
}

/// How a task stands.
#[derive(Default)]
struct TurnState {
    holder: Option<(String, StoreTime)>,
    done_at: Option<StoreTime>,
}

impl Step<'_> {
    /// Takes the turn at a task, unless it is somebody else's or was done lately.
    pub(super) fn take_turn(&mut self, request: &TurnRequest) -> Answer<Turn> {
        let mut state = self.turn_at(request.task)?;
        let mine = match &state.holder {
            Some((holder, until)) if *until > self.now => match *holder == request.holder {
                true => true,
                false => return Ok(Ok(Turn::Others(*until))),
            },
            _ => false,
        };
        let due = state.done_at.map(|at| at + request.every);
        if let Some(due) = due.filter(|due| *due > self.now && !mine) {
            return Ok(Ok(Turn::DoneUntil(due)));
        }
        let until = self.now + request.lasts;
        state.holder = Some((request.holder.clone(), until));
        self.save_turn(request.task, &state)?;
        Ok(Ok(Turn::Mine(until)))
    }

    /// Ends one's own turn.
    pub(super) fn end_turn(&mut self, task: Task, holder: &str, done: bool) -> Answer<()> {
        let mut state = self.turn_at(task)?;
        if state.holder.as_ref().is_some_and(|(theirs, _)| theirs == holder) {
            state.holder = None;
            if done {
                state.done_at = Some(self.now);
            }
            self.save_turn(task, &state)?;
        }
        Ok(Ok(()))
    }

    /// Everything has arrived.
    pub(super) fn mark_seeded(&mut self, since: StoreTime) -> Answer<bool> {
        let same = self.meta.resumed_at == since;
        self.meta.roster.seeded |= same;
        Ok(Ok(same))
    }

    fn turn_at(&self, task: Task) -> Result<TurnState, Cause> {
        let mut select = self.sql.prepare_cached(TURN)?;
        let mut rows = select.query(params![self.id, task.as_str()])?;
        let Some(row) = rows.next()? else {
            return Ok(TurnState::default());
        };
        // What a foreign hand has spoilt is nobody's turn; it only saves work.
        let holder: Option<String> = row.get(0).unwrap_or_default();
        Ok(TurnState {
            holder: holder.zip(read_instant_or_none(row, 1).unwrap_or_default()),
            done_at: read_instant_or_none(row, 2).unwrap_or_default(),
        })
    }

    fn save_turn(&self, task: Task, state: &TurnState) -> Result<(), Cause> {
        let holder = state.holder.as_ref();
        self.sql.prepare_cached(SAVE_TURN)?.execute(params![
            self.id,
            task.as_str(),
            holder.map(|(holder, _)| holder),
            holder.map(|(_, until)| instant(*until)),
            state.done_at.map(instant),
        ])?;
        Ok(())
    }
}
