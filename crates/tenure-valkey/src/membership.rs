//! Members and their tenures: join, beat, end, look up.

use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use tenure_core::call::Serve;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, TenureId, Term};
use tenure_core::membership::{
    Beat, BeatReplies, BeatReply, Beats, End, EndBy, EndReason, Join, Joined, Labels, Member, MemberOf, Members,
    Revision, SetLabels,
};
use tenure_core::store::{Call, Page};
use tenure_core::time::micros;

use crate::registry::read_refusal;
use crate::reply::{Malformed, Read, Reader};
use crate::script::Lateness;
use crate::store::ValkeyStore;
use crate::view::{Liveness, MemberRow, double};

#[async_trait]
impl Serve<Join> for ValkeyStore {
    async fn serve(&self, group: &Group, join: Join, call: Call) -> Result<Joined> {
        self.announce(group).await?;
        let labels = packed(&join.labels)?;
        let invocation = self
            .timely_call(group, call)
            .arg(join.member.as_str())
            .number(micros(join.ttl))
            .arg(labels);
        let (term, before, as_of) = self
            .connection
            .call(&self.scripts.join, invocation, |reader, now| {
                Ok((read_term(reader)?, reader.number()?, now))
            })
            .await?;
        let superseded = Term::new(before)
            .ok()
            .map(|term| TenureId::new(join.member.clone(), term));
        Ok(Joined {
            tenure: TenureId::new(join.member, term),
            ttl: join.ttl,
            expires_in: join.ttl,
            superseded,
            as_of,
        })
    }
}

#[async_trait]
impl Serve<Beats> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Beats, _: Call) -> Result<BeatReplies> {
        let beats = &ask.beats;
        // Terms are unique in a group. If a caller repeats one, the script only does extra work.
        let mut terms: Vec<Term> = beats.iter().map(|beat| beat.tenure.term()).collect();
        terms.sort_unstable();
        let repeated = terms.windows(2).any(|pair| pair.first() == pair.last());
        let ttls: Vec<u8> = match beats.iter().any(|beat| beat.ttl.is_some()) {
            true => beats
                .iter()
                .flat_map(|beat| double(beat.ttl.map_or(0, micros)))
                .collect(),
            false => Vec::new(),
        };
        let told: Vec<u8> = match beats.iter().any(|beat| !beat.revision.is_none()) {
            true => beats.iter().flat_map(|beat| double(beat.revision.0)).collect(),
            false => Vec::new(),
        };
        let newest: Vec<u8> = match beats.iter().any(|beat| beat.seen > beat.revision) {
            true => beats.iter().flat_map(|beat| double(beat.newest().0)).collect(),
            false => Vec::new(),
        };
        let invocation = self
            .write_call(group, Lateness::Harmless)
            .number(beats.len() as u64)
            .arg(if repeated { "1" } else { "0" })
            .arg(ttls)
            .arg(told)
            .arg(newest)
            .tenures(beats.iter().map(|beat| &beat.tenure));
        self.connection
            .call(&self.scripts.beat, invocation, |reader, as_of| {
                let replies = read_replies(reader, beats)?;
                Ok(BeatReplies { replies, as_of })
            })
            .await
    }
}

#[async_trait]
impl Serve<End> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: End, call: Call) -> Result<EndReason> {
        let stopped = ask.by == EndBy::NoProgress { stopped: true };
        let invocation = self
            .timely_call(group, call)
            .arg(ask.tenure.member().as_str())
            .number(ask.tenure.term().get())
            .arg(ask.by.reason().as_str())
            .arg(if stopped { "1" } else { "0" })
            .arg(ask.text.unwrap_or_default());
        self.connection
            .call(&self.scripts.end, invocation, |reader, _| read_reason(reader))
            .await
    }
}

#[async_trait]
impl Serve<SetLabels> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: SetLabels, call: Call) -> Result<()> {
        let SetLabels { tenure, labels } = &ask;
        let invocation = self
            .timely_call(group, call)
            .arg(tenure.member().as_str())
            .number(tenure.term().get())
            .arg(packed(labels)?);
        let refused = self
            .connection
            .call(&self.scripts.set_labels, invocation, |reader, _| read_refusal(reader))
            .await?;
        refused.map_or(Ok(()), |reason| Err(Error::ended(tenure, reason)))
    }
}

/// Labels as they are stored: JSON, or nothing without any.
fn packed(labels: &Labels) -> Result<String> {
    if labels.is_empty() {
        return Ok(String::new());
    }
    serde_json::to_string(labels)
        .map_err(|error| Error::new(ErrorKind::Internal, "cannot write labels as JSON").because(error))
}

#[async_trait]
impl Serve<MemberOf> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: MemberOf, _: Call) -> Result<Option<Member>> {
        let (liveness, rows) = self.members_of(group, [ask.member.as_str()]).await?;
        rows.into_iter().next().map(|row| liveness.member(row)).transpose()
    }
}

#[async_trait]
impl Serve<Members> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Members, _: Call) -> Result<Page<Member>> {
        let (names, next) = self.page_of_names(group, ("HSCAN", "members"), &ask.page).await?;
        let (liveness, rows) = self.members_of(group, names).await?;
        Ok(Page {
            items: rows
                .into_iter()
                .map(|row| liveness.member(row))
                .collect::<Result<_>>()?,
            next,
        })
    }
}

impl ValkeyStore {
    /// The members with these names.
    pub(crate) async fn members_of<A: AsRef<[u8]>>(
        &self,
        group: &Group,
        names: impl IntoIterator<Item = A>,
    ) -> Result<(Liveness, Vec<MemberRow>)> {
        let invocation = Self::read_call(group).args(names);
        self.connection
            .call(&self.scripts.members_of, invocation, |reader, now| {
                Ok((Liveness::read(reader, now)?, MemberRow::read_all(reader)?))
            })
            .await
    }
}

fn read_term(reader: &mut Reader) -> Read<Term> {
    let term = reader.number()?;
    Term::new(term).map_err(|_| Malformed(format!("the term {term}")))
}

/// Parses the reason of an end.
pub(crate) fn read_reason(reader: &mut Reader) -> Read<EndReason> {
    let name = reader.text()?;
    EndReason::parse(&name).ok_or_else(|| {
        Malformed(format!(
            "{:?} in place of a reason",
            name.chars().take(40).collect::<String>()
        ))
    })
}

/// The replies to beats: one ttl for all renewed tenures, or one value per tenure: its ttl, 0 for unknown, or minus the
/// number of its end reason. Then 0 when every revision is the highest that the caller named, or one revision per tenure.
fn read_replies(reader: &mut Reader, part: &[Beat]) -> Read<Vec<BeatReply>> {
    let (ttls, revisions) = (reader.value()?, reader.value()?);
    let mut revisions = read_each(revisions, part.len())?;
    let revision = |beat: &Beat| match &mut revisions {
        OneOrEach::One(_) => Ok(beat.newest()),
        OneOrEach::Each(own) => own.number().map(Revision),
    };
    match read_each(ttls, part.len())? {
        OneOrEach::One(ttl) => {
            let expires_in = renewed_for(ttl)?;
            let revisions = part.iter().map(revision);
            revisions
                .map(|revision| revision.map(|revision| BeatReply::Renewed { expires_in, revision }))
                .collect()
        }
        OneOrEach::Each(mut own) => {
            let told = part.iter().map(revision);
            told.map(|revision| read_reply(own.integer()?, revision?)).collect()
        }
    }
}

/// One number for all items, or one per item.
enum OneOrEach {
    One(i64),
    Each(Reader),
}

fn read_each(value: Value, expected: usize) -> Read<OneOrEach> {
    if let Value::Int(one) = value {
        return Ok(OneOrEach::One(one));
    }
    let own = Reader::new(value)?;
    match own.left() == expected {
        true => Ok(OneOrEach::Each(own)),
        false => Err(Malformed(format!("{} replies to {expected} beats", own.left()))),
    }
}

fn renewed_for(ttl: i64) -> Read<Duration> {
    let ttl = u64::try_from(ttl).map_err(|_| Malformed(format!("the ttl {ttl}")))?;
    Ok(Duration::from_micros(ttl))
}

fn read_reply(reply: i64, revision: Revision) -> Read<BeatReply> {
    Ok(match reply {
        0 => BeatReply::Unknown,
        -1 => BeatReply::Ended(EndReason::Lapsed),
        -2 => BeatReply::Ended(EndReason::Left),
        -3 => BeatReply::Ended(EndReason::Superseded),
        -4 => BeatReply::Ended(EndReason::Expelled),
        -5 => BeatReply::Ended(EndReason::NoProgress),
        ttl => BeatReply::Renewed {
            expires_in: renewed_for(ttl)?,
            revision,
        },
    })
}
