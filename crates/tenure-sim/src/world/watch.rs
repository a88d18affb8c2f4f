//! Checks on the holders when the store ends a tenure or grants a lease.

use tenure::{EndReason, Event, EventKind, TenureId, Verdict};

use super::World;
use crate::check::{Lapse, Violation, must};
use crate::program::places_of;
use crate::step::Step;

impl World {
    /// A tenure has lapsed in the store: its holder must have stopped on its own, and must have had a fault that kept
    /// it from beating.
    pub(super) fn watch_lapse(&mut self, lapse: &Lapse) -> Result<(), Violation> {
        let tenure = &lapse.current.tenure;
        if lapse.excused {
            self.excused.insert(tenure.clone());
            return Ok(());
        }
        let holder = self.holder_of(tenure);
        let Some((index, verdict)) = holder else { return Ok(()) };
        let now = self.clock.now();
        must(
            verdict != Verdict::Held,
            "a holder stops before its tenure can end",
            || format!("n{index} still trusts {tenure}, which lapsed at {}", lapse.now),
        )?;
        let storm = if self.storming { now } else { self.storm };
        let trouble = self.nodes[index].trouble().max(storm);
        let excused = self.checker.outages.left_no_time(&lapse.current, now);
        must(
            trouble >= lapse.current.renewed_in_world || excused,
            "silence of the store is not death",
            || {
                format!(
                    "{tenure} lapsed at {}; n{index} has had no trouble of its own since {trouble}, its last beat came at {}",
                    lapse.now, lapse.current.renewed_in_world
                )
            },
        )
    }

    /// A process has run: it must not trust a lapsed tenure.
    pub(super) fn watch_holder(&mut self, index: usize) -> Result<(), Violation> {
        let Some(membership) = self.nodes[index].view().and_then(crate::program::View::membership) else {
            return Ok(());
        };
        let tenure = membership.tenure();
        let ended = self.checker.shadow.ended.get(&tenure);
        let lapsed = ended.is_some_and(|ended| ended.reason == EndReason::Lapsed) && !self.excused.contains(&tenure);
        must(
            !lapsed || membership.verdict() != Verdict::Held,
            "a holder stops before its tenure can end",
            || format!("n{index} trusts {tenure}, which has lapsed"),
        )
    }

    /// The store has granted a lease: no other holder trusts it at this instant, on any machine, running or stopped.
    pub(super) fn watch_grant(&mut self, step: &Step, event: &Event) -> Result<(), Violation> {
        let (EventKind::LeaseGranted | EventKind::LeaseTakenOver, Some(lease), Some(token)) =
            (event.kind, &event.lease, event.token)
        else {
            return Ok(());
        };
        let place = event.place.unwrap_or_default();
        let (mut both, mut trusting, mut excused) = (None, 1, Vec::new());
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(view) = node.view() else { continue };
            view.for_each_guard(|guard| {
                let other = guard.lease() == lease && guard.token() != token;
                if !other
                    || guard.verdict() != Verdict::Held
                    || self.excused.contains(guard.tenure())
                    || self.checker.may_be_granted_again(guard.tenure(), lease, guard.token())
                {
                    return;
                }
                if self.checker.excuse(guard.tenure(), step)
                    || self.checker.excuse_revoked(guard.tenure(), guard.token(), step)
                {
                    // The fence will refuse that holder, too: its tenure or grant ended earlier than it can know.
                    excused.push(guard.tenure().clone());
                    return;
                }
                trusting += 1;
                if guard.place() == place {
                    both = Some(format!(
                        "{lease}, place {place}, was granted to {:?} with {token}; n{index} trusts {} with {}",
                        event.tenure,
                        guard.tenure(),
                        guard.token()
                    ));
                }
            });
        }
        self.excused.extend(excused);
        must(both.is_none(), "never two holders who trust one lease", || {
            both.unwrap_or_default()
        })?;
        let places = usize::from(places_of(lease));
        must(
            trusting <= places,
            "never more holders who trust a lease than it has places",
            || format!("{trusting} trust {lease} of {places} places when {token} is granted"),
        )
    }

    /// The fence has refused no holder that had reason to trust its lease, and admitted no older token.
    pub(super) fn watch_sink(&self) -> Result<(), Violation> {
        let regression = self.sink.regression();
        must(regression.is_none(), "a fence admits no older token", || {
            regression.unwrap_or_default()
        })?;
        for refused in self.sink.take_refused() {
            // Its grant was lost with a tail and it cannot know yet: fencing exists for this case.
            let lost = self
                .checker
                .is_lost_unknown(&refused.tenure, &refused.lease, refused.token);
            must(
                lost || self.excused.contains(&refused.tenure),
                "never two holders who trust one lease",
                || format!("the fence refused {refused:?}, who still trusts it"),
            )?;
        }
        Ok(())
    }

    fn holder_of(&self, tenure: &TenureId) -> Option<(usize, Verdict)> {
        self.nodes.iter().enumerate().find_map(|(index, node)| {
            let membership = node.view()?.membership()?;
            (membership.tenure() == *tenure).then(|| (index, membership.verdict()))
        })
    }
}
