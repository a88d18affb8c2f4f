//! What the world sees of a holder when the store has declared its tenure over.

use tenure::{EndReason, TenureId, Verdict};

use super::World;
use crate::check::{Lapse, Violation, must};

impl World {
    /// A tenure has lapsed in the store: whoever holds it must have stopped by itself, and must have had a reason not to
    /// beat.
    pub(super) fn watch_lapse(&mut self, lapse: &Lapse) -> Result<(), Violation> {
        let tenure = &lapse.current.tenure;
        if lapse.jumped || lapse.tail_lost {
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
        must(
            trouble >= lapse.current.renewed_in_world,
            "silence of the store is not death",
            || {
                format!(
                    "{tenure} lapsed at {}; n{index} has had no trouble of its own since {trouble}, its last beat came at {}",
                    lapse.now, lapse.current.renewed_in_world
                )
            },
        )
    }

    /// A process has run: it does not trust a tenure that has lapsed.
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

    fn holder_of(&self, tenure: &TenureId) -> Option<(usize, Verdict)> {
        self.nodes.iter().enumerate().find_map(|(index, node)| {
            let membership = node.view()?.membership()?;
            (membership.tenure() == *tenure).then(|| (index, membership.verdict()))
        })
    }
}
