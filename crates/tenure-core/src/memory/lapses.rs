//! Members that lapsed and have not rejoined, for the brake.

use std::collections::BTreeSet;
use std::time::Duration;

use super::table::Table;
use crate::id::MemberId;
use crate::time::StoreTime;

/// The maximum number of expired rows that one step removes; a mass failure may leave very many.
const REMOVED_AT_MOST: usize = 500;

/// Lapsed members.
#[derive(Debug, Default)]
pub(super) struct Lapses {
    pub(super) table: Table<MemberId, StoreTime>,
    /// Those that count.
    by_time: BTreeSet<(StoreTime, MemberId)>,
    /// Those that no longer count; later steps remove their rows.
    over: BTreeSet<(StoreTime, MemberId)>,
}

impl Lapses {
    /// The number that counts.
    pub(super) fn len(&self) -> u64 {
        self.table.see_all();
        self.by_time.len() as u64
    }

    /// Records that a member lapsed or rejoined.
    pub(super) fn set(&mut self, member: MemberId, at: Option<StoreTime>) {
        if let Some(before) = self.table.set(member.clone(), at) {
            self.by_time.remove(&(before, member.clone()));
        }
        if let Some(at) = at {
            self.by_time.insert((at, member));
        }
    }

    /// Stops counting members that lapsed before the window. Changes no row.
    pub(super) fn drop_older(&mut self, window: Duration, now: StoreTime) {
        let oldest = now.minus(window);
        if self.by_time.first().is_none_or(|(at, _)| *at >= oldest) {
            return;
        }
        let kept = self.by_time.split_off(&(oldest, MemberId::first()));
        let mut older = std::mem::replace(&mut self.by_time, kept);
        self.over.append(&mut older);
    }

    /// Drops all.
    pub(super) fn clear(&mut self) {
        self.over.append(&mut self.by_time);
        self.remove_over();
    }

    /// Removes some rows that no longer count. After a restart in between they count again, which at most brakes.
    pub(super) fn remove_over(&mut self) {
        for _ in 0..REMOVED_AT_MOST {
            let Some((at, member)) = self.over.pop_first() else {
                break;
            };
            let same = self.table.get(&member) == Some(&at);
            if same && !self.by_time.contains(&(at, member.clone())) {
                self.table.remove(&member);
            }
        }
    }

    /// Counts the members with remaining rows again.
    pub(super) fn put_back(&mut self) {
        let there = std::mem::take(&mut self.over).into_iter();
        let there = there.filter(|(at, member)| self.table.get(member) == Some(at));
        self.by_time.extend(there);
    }
}

#[cfg(test)]
mod tests {
    use crate::call::{Op, Reply};
    use crate::id::TenureId;
    use crate::membership::{Beat, BeatReply, Join, Labels, Revision};
    use crate::memory::GroupModel;
    use crate::store::{Call, StoreOptions};
    use crate::sweep::EndLapsed;
    use crate::time::StoreTime;
    use std::time::Duration;

    struct Steps(GroupModel, u64);

    impl Steps {
        fn step(&mut self, op: Op, now: StoreTime) -> Reply {
            self.1 += 1;
            self.0.begin_step(self.1);
            let reply = self.0.decide(&op, Call::default(), now).unwrap();
            let number = self.0.take().number;
            self.0.durable(number);
            reply
        }

        fn join(&mut self, member: &str, ttl: Duration, now: StoreTime) -> TenureId {
            let (member, labels) = (member.parse().unwrap(), Labels::default());
            match self.step(Op::Join(Join { member, ttl, labels }), now) {
                Reply::Join(joined) => joined.tenure,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Beats that take no step forget lapses as others do, so a member that is alone has the gap of its own ttl.
    #[test]
    fn beat_without_a_step_forgets_old_lapses() {
        let (second, mut now) = (Duration::from_secs(1), StoreTime::from_micros(1_700_000_000_000_000));
        let model = GroupModel::new(StoreOptions::default(), now).kept();
        let mut steps = Steps(model, 0);
        steps.join("short", second, now);
        let tenure = steps.join("long", second * 30, now);
        let (ttl, revision) = (None, Revision::NONE);
        let beat = Beat {
            tenure,
            ttl,
            revision,
            seen: Revision::NONE,
        };
        for nth in 0..100 {
            now = now + second * 2 / 5;
            let reply = steps.0.beat_at_once(&beat, now);
            assert!(matches!(reply, Some(BeatReply::Renewed { .. })), "{nth}: {reply:?}");
            if nth == 3 {
                steps.step(Op::EndLapsed(EndLapsed { limit: 9 }), now);
                assert_eq!(steps.0.lapses.len(), 1);
            }
        }
        steps.join("long", second * 30, now);
        assert_eq!(steps.0.gap(), second * 2);
    }
}
