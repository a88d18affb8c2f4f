//! A step of the store, as the checkers see it.

use tenure::{Event, Group, Result, StoreTime, TenureId};
use tenure_core::call::{Op, Reply};
use tenure_core::store::Call;

use crate::time::At;

/// One request as the store carried it out.
#[derive(Debug)]
pub struct Step {
    /// The number of the request.
    pub number: u64,
    /// The node that sent it.
    pub node: usize,
    /// When it was sent.
    pub sent_at: At,
    /// When it was carried out.
    pub at: At,
    /// The same instant on the store's clock.
    pub now: StoreTime,
    /// The sum of the store clock's forward jumps, in microseconds.
    pub jumped: u64,
    /// The group; that of the programs for a call on no group.
    pub group: Group,
    /// The call.
    pub op: Op,
    /// The not-after of the call.
    pub call: Call,
    /// The reply.
    pub reply: Result<Reply>,
    /// The events it wrote.
    pub events: Vec<Event>,
    /// When the store last resumed serving, by its status after this step.
    pub resumed_at: StoreTime,
    /// The end of the group's grace, by its status after this step.
    pub unsettled_until: Option<StoreTime>,
    /// The length of a gap, by its status before this step.
    pub gap: std::time::Duration,
}

impl Step {
    /// The numbers that distinguish this step from any other at its time, for the digest of a history.
    #[must_use]
    pub fn numbers(&self) -> Vec<u64> {
        let mut numbers = vec![
            self.number,
            self.node as u64,
            self.now.micros(),
            self.resumed_at.micros(),
        ];
        numbers.push(match &self.reply {
            Ok(_) => 1,
            Err(error) => 2 + u64::try_from(error.message().len()).unwrap_or(0),
        });
        for event in &self.events {
            numbers.push(event.id.0);
            numbers.push(event.kind as u64);
            numbers.push(event.tenure.as_ref().map_or(0, |tenure| tenure.term().get()));
            numbers.extend(event.counts.values());
        }
        if let Ok(Reply::Claim(claimed)) = &self.reply {
            numbers.extend(claimed.outcomes.iter().map(|outcome| outcome.as_str().len() as u64));
        }
        numbers
    }

    /// One line of text.
    #[must_use]
    pub fn text(&self) -> String {
        let reply = match &self.reply {
            Ok(Reply::Status(status) | Reply::Tick(status)) => format!(
                "{} members, {} releasing, unsettled {:?}, brake {}",
                status.members,
                status.releasing,
                status.unsettled.map(|grace| grace.cause),
                status.brake.is_some()
            ),
            Ok(reply) => format!("{reply:?}"),
            Err(error) => format!("refused: {:?}: {}", error.kind(), error.message()),
        };
        let mut line = format!(
            "store   {} n{} #{} {:?} -> {reply}",
            self.now, self.node, self.number, self.op
        );
        for event in &self.events {
            let tenure = event.tenure.as_ref().map(TenureId::to_string).unwrap_or_default();
            let reason = event.reason.as_deref().unwrap_or("");
            let lease = event.lease.as_ref().map(|lease| format!(" {lease} {:?}", event.token));
            line.push_str(&format!(
                "\n             event {} {tenure} {reason} {:?} {:?}{}",
                event.kind.as_str(),
                event.counts,
                event.keys,
                lease.unwrap_or_default()
            ));
        }
        line
    }
}
