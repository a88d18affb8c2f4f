//! Members: join, beat, end and look up.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Row, params};
use tenure_core::call::Serve;
use tenure_core::event::EventKind;
use tenure_core::membership::{
    Beat, BeatReply, Beaten, Beats, End, EndBy, EndReason, Holdings, Join, Joined, Labels, Member, MemberOf, Members,
    Revision,
};
use tenure_core::store::{Call, Page, bad_cursor};
use tenure_core::sweep::BATCH;
use tenure_core::{Error, Group, MemberId, Result, StoreTime, TenureId, Term};

use crate::error::Cause;
use crate::event::Draft;
use crate::live::{Entry, Live};
use crate::page::{Listing, cursor, place};
use crate::sql::{instant, number, read_holdings, read_instant, read_name, read_number, read_span, span, statements};
use crate::step::{Answer, Step};
use crate::store::SqliteStore;

statements! { "membership.sql":
    UPSERT = "upsert",
    CHANGE_TTL = "change_ttl",
    ONE = "one",
    PAGE = "page",
}
statements! { "sweep.sql":
    BACK = "back",
}

/// How often a read is repeated when the rows it saw were changed before it could look at the live table.
const LOOKS: u32 = 8;

impl Step<'_> {
    /// Begins a tenure.
    fn join(&mut self, join: &Join) -> Answer<Joined> {
        let before = self.live.lock().head(&join.member);
        let alone = self.is_alone(before);
        let mut superseded = None;
        if let Some(before) = before {
            let before = TenureId::new(join.member.clone(), before.term);
            let judge = |past| Some(if past { EndReason::Lapsed } else { EndReason::Superseded });
            if let Some((entry, reason)) = self.take(&before, judge) {
                self.end_taken(&before, &entry, reason)?;
                superseded = (reason == EndReason::Superseded).then_some(before);
            }
        }
        let tenure = self.begin_tenure(&join.member, join.ttl, &join.labels, alone)?;
        self.engage_brake()?;
        Ok(Ok(Joined {
            tenure,
            ttl: join.ttl,
            expires_in: join.ttl,
            superseded,
            as_of: self.now,
        }))
    }

    /// Whether nobody else is there than this one, and nobody has lapsed of late.
    pub(crate) fn is_alone(&self, member: Option<Entry>) -> bool {
        let others = self.meta.members - u64::from(member.is_some());
        others == 0 && self.meta.lapses == 0
    }

    /// Begins a tenure of a member that has none; `alone` as it was when the step began: then the ttls of others are history.
    pub(crate) fn begin_tenure(
        &mut self,
        member: &MemberId,
        ttl: Duration,
        labels: &Labels,
        alone: bool,
    ) -> Result<TenureId, Cause> {
        let term = Term::new(self.next_number()).map_err(|error| Cause::Strange(error.to_string()))?;
        let tenure = TenureId::new(member.clone(), term);
        let deadline = self.now + ttl;
        if alone {
            self.meta.ttls = None;
        }
        self.meta.note_ttl(ttl);
        let entry = Entry {
            term,
            deadline,
            ttl,
            due: deadline,
            refused: StoreTime::ZERO,
            revision: Revision::NONE,
        };
        self.begin(&tenure, &entry, labels)?;
        self.emit(Draft::new(EventKind::Joined).of(&tenure))?;
        Ok(tenure)
    }

    /// Writes a new member and strikes it off the lapsed ones.
    fn begin(&mut self, tenure: &TenureId, entry: &Entry, labels: &Labels) -> Result<(), Cause> {
        let member = tenure.member();
        let labels = serde_json::to_string(labels).map_err(|error| Cause::Strange(error.to_string()))?;
        self.sql.prepare_cached(UPSERT)?.execute(params![
            self.id,
            member.as_str(),
            number(entry.term.get()),
            span(entry.ttl),
            instant(entry.deadline),
            labels
        ])?;
        self.undo.replace(&mut self.live.lock(), member, Some(*entry));
        self.meta.members += 1;
        if self.meta.lapses > 0 {
            let back = self
                .sql
                .prepare_cached(BACK)?
                .execute(params![self.id, member.as_str()])?;
            self.meta.lapses = self.meta.lapses.saturating_sub(back as u64);
        }
        Ok(())
    }

    /// Answers beats one by one.
    fn beat(&mut self, beats: &[Beat]) -> Answer<Vec<BeatReply>> {
        let replies = beats
            .iter()
            .map(|beat| self.beat_one(beat))
            .collect::<Result<_, Cause>>()?;
        self.engage_brake()?;
        Ok(Ok(replies))
    }

    fn beat_one(&mut self, beat: &Beat) -> Result<BeatReply, Cause> {
        if self.end_if_past(&beat.tenure)? {
            return Ok(BeatReply::Ended(EndReason::Lapsed));
        }
        let current = self.live.lock().head(beat.tenure.member());
        let Some(before) = current.filter(|entry| entry.term == beat.tenure.term()) else {
            return match self.reason_of(&beat.tenure)? {
                EndReason::Unknown => self.unknown_beat(beat.tenure.term()),
                reason => Ok(BeatReply::Ended(reason)),
            };
        };
        let ttl = beat.ttl.unwrap_or(before.ttl);
        let deadline = self.now + ttl;
        if ttl == before.ttl {
            // Another beat may have come since this step was opened; the later one counts.
            if let Some(entry) = self.live.lock().head_mut(beat.tenure.member()) {
                entry.deadline = entry.deadline.max(deadline);
            }
        } else {
            // A new ttl is written: after a restart the member must get that one in full.
            let due = if ttl < before.ttl {
                before.due.min(deadline)
            } else {
                before.due
            };
            let entry = Entry {
                deadline,
                ttl,
                due,
                ..before
            };
            self.undo
                .replace(&mut self.live.lock(), beat.tenure.member(), Some(entry));
            self.write_ttl(beat.tenure.member(), &entry)?;
        }
        self.meta.note_ttl(ttl);
        self.compare_revisions(beat.revision)?;
        Ok(BeatReply::Renewed {
            expires_in: ttl,
            revision: before.revision,
        })
    }

    /// Writes the ttl of a member and its deadline.
    pub(crate) fn write_ttl(&self, member: &MemberId, entry: &Entry) -> Result<(), Cause> {
        self.sql.prepare_cached(CHANGE_TTL)?.execute(params![
            self.id,
            member.as_str(),
            number(entry.term.get()),
            span(entry.ttl),
            instant(entry.deadline)
        ])?;
        Ok(())
    }

    /// A term that the sequence has not reached, but this life of the store should know: an older copy of the file was
    /// put in place.
    fn unknown_beat(&mut self, term: Term) -> Result<BeatReply, Cause> {
        let term = term.get();
        if self.meta.seq < term && term <= self.now.micros() && term > self.meta.born_at.micros() {
            self.believe_a_loss(term)?;
        }
        Ok(BeatReply::Unknown)
    }

    /// Ends a tenure on purpose.
    fn end(&mut self, tenure: &TenureId, by: EndBy) -> Answer<EndReason> {
        let wanted = match by {
            EndBy::Leave => EndReason::Left,
            EndBy::Expel => EndReason::Expelled,
        };
        if let Some((entry, reason)) = self.take(tenure, |past| Some(if past { EndReason::Lapsed } else { wanted })) {
            self.end_taken(tenure, &entry, reason)?;
        }
        self.engage_brake()?;
        Ok(Ok(self.reason_of(tenure)?))
    }
}

/// A member as its row tells.
struct MemberRow {
    tenure: TenureId,
    ttl: Duration,
    deadline: StoreTime,
    labels: Labels,
    holdings: Holdings,
}

impl MemberRow {
    fn read(row: &Row<'_>) -> Result<Self, Cause> {
        let strange = |error: String| Cause::Strange(error);
        let member: MemberId = read_name(row, 0)?;
        let term = Term::new(read_number(row, 1)?).map_err(|error: Error| strange(error.to_string()))?;
        let labels = row.get_ref(4)?.as_str().map_err(|error| strange(error.to_string()))?;
        Ok(Self {
            tenure: TenureId::new(member, term),
            ttl: read_span(row, 2)?,
            deadline: read_instant(row, 3)?,
            labels: serde_json::from_str(labels).map_err(|error| strange(error.to_string()))?,
            holdings: read_holdings(row, 5)?,
        })
    }

    /// Joins the row with the live entry; without one the tenure has ended since the row was read.
    fn with(self, entry: Option<Entry>, resumed_at: StoreTime, now: StoreTime) -> Member {
        let end = entry.map_or(StoreTime::ZERO, |entry| entry.end(resumed_at, now));
        let (ttl, deadline) = entry.map_or((self.ttl, self.deadline), |entry| (entry.ttl, entry.deadline));
        Member {
            member: self.tenure.member().clone(),
            joined_at: self.tenure.began_at(),
            tenure: self.tenure,
            alive: now < end,
            ttl,
            expires_in: end.since(now),
            last_beat_at: deadline.minus(ttl),
            labels: self.labels,
            holdings: self.holdings,
        }
    }
}

impl SqliteStore {
    /// Reads member rows and joins them with the live table. When a row's tenure has ended in between, the rows are read
    /// again, so that a member that joined again is shown with its new tenure.
    async fn member_rows(
        &self,
        live: &Live,
        read: impl Fn(&rusqlite::Connection) -> Result<Vec<MemberRow>, Cause> + Clone + Send + 'static,
    ) -> Result<Vec<Member>> {
        for look in 1.. {
            let rows = self.read(read.clone()).await?;
            let done = live.look(self.clock(), |table, now| {
                let changed = rows.iter().any(|row| table.seen(&row.tenure).is_none());
                if changed && look < LOOKS {
                    return None;
                }
                let resumed_at = table.resumed_for_reading(now);
                let with = |row: MemberRow| {
                    let entry = table.seen(&row.tenure);
                    row.with(entry, resumed_at, now)
                };
                Some(rows.into_iter().map(with).collect())
            });
            if let Some(members) = done {
                return Ok(members);
            }
        }
        Ok(Vec::new())
    }
}

#[async_trait]
impl Serve<Join> for SqliteStore {
    async fn serve(&self, group: &Group, join: Join, call: Call) -> Result<Joined> {
        self.step(group, call, move |step| step.join(&join)).await
    }
}

#[async_trait]
impl Serve<Beats> for SqliteStore {
    /// Answers from memory, and what memory cannot answer in steps.
    async fn serve(&self, group: &Group, ask: Beats, _: Call) -> Result<Beaten> {
        let beats = ask.beats;
        let (as_of, mut replies) = match self.live(group)? {
            Some(live) => {
                let (now, replies) = live.beat(self.clock(), self.life(), &beats);
                (Some(now), replies)
            }
            None => (None, vec![None; beats.len()]),
        };
        self.keep_high_water();
        let mut as_of = as_of.filter(|_| !replies.is_empty() && replies.iter().any(Option::is_some));
        let left: Vec<usize> = (0..beats.len()).filter(|n| replies[*n].is_none()).collect();
        let parts = left.chunks(BATCH as usize).chain(beats.is_empty().then_some(&[][..]));
        for part in parts {
            let slow: Vec<Beat> = part.iter().map(|n| beats[*n].clone()).collect();
            let (now, answered) = self
                .step(group, Call::default(), move |step| {
                    let now = step.now;
                    Ok(step.beat(&slow)?.map(|replies| (now, replies)))
                })
                .await?;
            // The earliest time of the parts: what expires is then told too early rather than too late.
            as_of.get_or_insert(now);
            for (n, reply) in part.iter().zip(answered) {
                replies[*n] = Some(reply);
            }
        }
        Ok(Beaten {
            replies: replies
                .into_iter()
                .map(|reply| reply.unwrap_or(BeatReply::Unknown))
                .collect(),
            as_of: as_of.unwrap_or_else(|| self.clock().now()),
        })
    }
}

#[async_trait]
impl Serve<End> for SqliteStore {
    async fn serve(&self, group: &Group, ask: End, call: Call) -> Result<EndReason> {
        self.step(group, call, move |step| step.end(&ask.tenure, ask.by)).await
    }
}

#[async_trait]
impl Serve<MemberOf> for SqliteStore {
    async fn serve(&self, group: &Group, ask: MemberOf, _: Call) -> Result<Option<Member>> {
        let Some(live) = self.live(group)? else { return Ok(None) };
        let id = live.id;
        let read = move |sql: &rusqlite::Connection| {
            let mut select = sql.prepare_cached(ONE)?;
            let mut rows = select.query(params![id, ask.member.as_str()])?;
            rows.next()?.map(MemberRow::read).into_iter().collect()
        };
        Ok(self.member_rows(&live, read).await?.pop())
    }
}

#[async_trait]
impl Serve<Members> for SqliteStore {
    async fn serve(&self, group: &Group, ask: Members, _: Call) -> Result<Page<Member>> {
        let (page, limit) = (&ask.page, ask.page.limit);
        let after = match &page.after {
            None => String::new(),
            Some(text) => place(Listing::Members, text)
                .filter(|name| MemberId::new(name).is_ok())
                .ok_or_else(|| bad_cursor(text))?
                .to_owned(),
        };
        let Some(live) = self.live(group)? else {
            return Ok(Page::default());
        };
        let id = live.id;
        let read = move |sql: &rusqlite::Connection| {
            let mut select = sql.prepare_cached(PAGE)?;
            let mut rows = select.query(params![id, after, limit + 1])?;
            let mut members = Vec::new();
            while let Some(row) = rows.next()? {
                members.push(MemberRow::read(row)?);
            }
            Ok(members)
        };
        let items = self.member_rows(&live, read).await?;
        Ok(crate::page::cut(items, limit, |member| {
            cursor(Listing::Members, member.member.as_str())
        }))
    }
}
