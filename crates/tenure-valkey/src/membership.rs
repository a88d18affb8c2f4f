//! Members and their tenures: join, beat, end, look up.

use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, MemberId, TenureId, Term};
use tenure_core::membership::{
    Beat, BeatReply, Beaten, EndBy, EndReason, Join, Joined, Member, MembershipStore, Revision, check_beats,
};
use tenure_core::parts::Parts;
use tenure_core::store::{Call, Page, PageRequest, check_limit};
use tenure_core::time::{StoreTime, micros};
use tenure_core::timing::check_ttl;

use crate::reply::{Malformed, Read, Reader};
use crate::script::Lateness;
use crate::store::ValkeyStore;
use crate::view::{Life, MemberRow, double};

/// How many beats one script takes at most: less than a millisecond of the server's time.
const BEATS: usize = 200;

#[async_trait]
impl MembershipStore for ValkeyStore {
    async fn join(&self, group: &Group, join: &Join, call: Call) -> Result<Joined> {
        check_ttl(join.ttl, self.options.max_ttl)?;
        self.announce(group).await?;
        let labels = match join.labels.is_empty() {
            true => String::new(),
            false => serde_json::to_string(&join.labels)
                .map_err(|error| Error::new(ErrorKind::Internal, "labels that are no JSON").because(error))?,
        };
        let invocation = self
            .punctual(group, call)
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
        let tenure = TenureId::new(join.member.clone(), term);
        Ok(Joined {
            tenure,
            ttl: join.ttl,
            expires_in: join.ttl,
            superseded,
            as_of,
        })
    }

    async fn beat(&self, group: &Group, beats: &[Beat]) -> Result<Beaten> {
        check_beats(beats, self.options.max_ttl)?;
        let mut beaten = Beaten {
            replies: Vec::with_capacity(beats.len()),
            as_of: StoreTime::ZERO,
        };
        // An empty batch is still a step: it ticks.
        let parts: Vec<&[Beat]> = if beats.is_empty() {
            vec![&[]]
        } else {
            beats.chunks(BEATS).collect()
        };
        let mut done = Parts::default();
        for part in parts {
            let (replies, as_of) = done.take(self.beat_part(group, part).await)?;
            beaten.replies.extend(replies);
            beaten.as_of = as_of;
        }
        Ok(beaten)
    }

    async fn end(&self, group: &Group, tenure: &TenureId, by: EndBy, call: Call) -> Result<EndReason> {
        let reason = match by {
            EndBy::Leave => EndReason::Left,
            EndBy::Expel => EndReason::Expelled,
        };
        let invocation = self
            .punctual(group, call)
            .arg(tenure.member().as_str())
            .number(tenure.term().get())
            .arg(reason.as_str());
        self.connection
            .call(&self.scripts.end, invocation, |reader, _| read_reason(reader))
            .await
    }

    async fn member(&self, group: &Group, member: &MemberId) -> Result<Option<Member>> {
        let (life, rows) = self.members_of(group, [member.as_str()]).await?;
        rows.into_iter().next().map(|row| life.member(row)).transpose()
    }

    async fn members(&self, group: &Group, page: &PageRequest) -> Result<Page<Member>> {
        check_limit(page.limit)?;
        let (names, next) = self.page_of_names(group, ("HSCAN", "members"), page).await?;
        let (life, rows) = self.members_of(group, names).await?;
        Ok(Page {
            items: rows.into_iter().map(|row| life.member(row)).collect::<Result<_>>()?,
            next,
        })
    }
}

impl ValkeyStore {
    async fn beat_part(&self, group: &Group, part: &[Beat]) -> Result<(Vec<BeatReply>, StoreTime)> {
        // No two tenures of a group have one term; should somebody send such, the script only does more than it must.
        let mut terms: Vec<Term> = part.iter().map(|beat| beat.tenure.term()).collect();
        terms.sort_unstable();
        let repeated = terms.windows(2).any(|pair| pair.first() == pair.last());
        let ttls: Vec<u8> = match part.iter().any(|beat| beat.ttl.is_some()) {
            true => part
                .iter()
                .flat_map(|beat| double(beat.ttl.map_or(0, micros)))
                .collect(),
            false => Vec::new(),
        };
        let told: Vec<u8> = match part.iter().any(|beat| !beat.revision.is_none()) {
            true => part.iter().flat_map(|beat| double(beat.revision.0)).collect(),
            false => Vec::new(),
        };
        let invocation = self
            .changing(group, Lateness::Harmless)
            .number(part.len() as u64)
            .arg(if repeated { "1" } else { "0" })
            .arg(ttls)
            .arg(told)
            .tenures(part.iter().map(|beat| &beat.tenure));
        self.connection
            .call(&self.scripts.beat, invocation, |reader, now| {
                Ok((read_replies(reader, part)?, now))
            })
            .await
    }

    /// Members by name, those that are there.
    pub(crate) async fn members_of<A: AsRef<[u8]>>(
        &self,
        group: &Group,
        names: impl IntoIterator<Item = A>,
    ) -> Result<(Life, Vec<MemberRow>)> {
        let invocation = Self::reading(group).args(names);
        self.connection
            .call(&self.scripts.members_of, invocation, |reader, now| {
                Ok((Life::read(reader, now)?, MemberRow::read_all(reader)?))
            })
            .await
    }
}

fn read_term(reader: &mut Reader) -> Read<Term> {
    let term = reader.number()?;
    Term::new(term).map_err(|_| Malformed(format!("the term {term}")))
}

/// The reason of an end, by its name on the wire.
pub(crate) fn read_reason(reader: &mut Reader) -> Read<EndReason> {
    let name = reader.text()?;
    EndReason::parse(&name).ok_or_else(|| {
        Malformed(format!(
            "{:?} in place of a reason",
            name.chars().take(40).collect::<String>()
        ))
    })
}

/// The replies to beats: one ttl that all were renewed for, or for each the ttl a tenure was renewed for, 0 for an unknown
/// one, or minus the number of its reason; then 0 when every revision is what was told, or each one.
fn read_replies(reader: &mut Reader, part: &[Beat]) -> Read<Vec<BeatReply>> {
    let (ttls, revisions) = (reader.value()?, reader.value()?);
    let mut revisions = each(revisions, part.len())?;
    let revision = |beat: &Beat| match &mut revisions {
        Each::One(_) => Ok(beat.revision),
        Each::Own(own) => own.number().map(Revision),
    };
    match each(ttls, part.len())? {
        Each::One(ttl) => {
            let expires_in = renewed_for(ttl)?;
            let revisions = part.iter().map(revision);
            revisions
                .map(|revision| revision.map(|revision| BeatReply::Renewed { expires_in, revision }))
                .collect()
        }
        Each::Own(mut own) => {
            let told = part.iter().map(revision);
            told.map(|revision| read_reply(own.integer()?, revision?)).collect()
        }
    }
}

/// One number for all, or each its own.
enum Each {
    One(i64),
    Own(Reader),
}

fn each(value: Value, expected: usize) -> Read<Each> {
    if let Value::Int(one) = value {
        return Ok(Each::One(one));
    }
    let own = Reader::new(value)?;
    match own.left() == expected {
        true => Ok(Each::Own(own)),
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
        ttl => BeatReply::Renewed {
            expires_in: renewed_for(ttl)?,
            revision,
        },
    })
}
