//! Bounded load: shares that differ by no more than one target, at the price of some targets away from where they would
//! rather be.
//!
//! Rendezvous hashing is even on average, and a fleet with few targets is not an average: 8 targets on 3 nodes come out
//! as 5/1/2 as easily as 3/3/2. Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam, 2016) caps every
//! node at its share and lets the rest go to the next in rank. This is that idea, with a cap that is tight, and with
//! memory: a target that is somewhere already stays there unless its node has more than its share and another has strictly
//! less. So a node that leaves moves its own targets only, and one that joins takes as many as its share and not one more:
//! the smallest number of moves that can level the load at all.
//!
//! Every move lowers the higher of two relative loads, so levelling cannot go round in circles.

use super::Placement;
use crate::id::MemberId;

/// The most rounds of levelling in one call. With targets of one weight the second finds nothing to do.
const ROUNDS: usize = 8;

/// A target, and where it is now.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// Its name.
    pub target: &'a str,
    /// Its share of a node's load, at least 1.
    pub weight: u32,
    /// The node it is on. A node that is not in the placement counts as none.
    pub on: Option<&'a MemberId>,
}

/// Gives every target a node, so that the loads are level by the nodes' weights. The answer is in the order of the
/// loads, `None` only without nodes; it does not depend on the order of the input, and does not change when the targets
/// are where it says. With weights of one, no node has more than `ceil(targets × its share)`, nor less than the floor.
/// O(targets × (nodes + log targets)).
#[must_use]
pub fn level<'p>(placement: &'p Placement, loads: &[Load<'_>]) -> Vec<Option<&'p MemberId>> {
    if placement.nodes.is_empty() {
        return vec![None; loads.len()];
    }
    let mut desk = Desk::new(placement, loads);
    desk.place_free();
    desk.give_remainder();
    for _ in 0..ROUNDS {
        if !desk.level_once() {
            break;
        }
    }
    let name = |at: usize| &placement.nodes[at].node.name;
    desk.homes.into_iter().map(|home| home.map(name)).collect()
}

struct Desk<'a> {
    placement: &'a Placement,
    loads: &'a [Load<'a>],
    homes: Vec<Option<usize>>,
    /// The weight on each node.
    sums: Vec<u64>,
    /// Its share of the whole: rounded down at first, then with its part of the remainder.
    shares: Vec<u64>,
}

impl<'a> Desk<'a> {
    fn new(placement: &'a Placement, loads: &'a [Load<'a>]) -> Self {
        let homes: Vec<_> = loads
            .iter()
            .map(|load| load.on.and_then(|node| placement.index(node)))
            .collect();
        let mut sums = vec![0; placement.nodes.len()];
        for (load, home) in loads.iter().zip(&homes) {
            if let Some(at) = home {
                sums[*at] += weight(load);
            }
        }
        let whole: u64 = loads.iter().map(weight).sum();
        let mut desk = Self {
            placement,
            loads,
            homes,
            sums,
            shares: Vec::new(),
        };
        let weights: u64 = (0..placement.nodes.len()).map(|at| desk.node_weight(at)).sum();
        desk.shares = (0..placement.nodes.len())
            .map(|at| whole * desk.node_weight(at) / weights)
            .collect();
        desk
    }

    /// Finds a node for each target that has none: heavy ones first, while there is room for them.
    fn place_free(&mut self) {
        let mut free: Vec<usize> = (0..self.loads.len()).filter(|t| self.homes[*t].is_none()).collect();
        free.sort_by(|a, b| {
            let (a, b) = (&self.loads[*a], &self.loads[*b]);
            b.weight.cmp(&a.weight).then_with(|| a.target.cmp(b.target))
        });
        for target in free {
            let any = |_: &Self, _: usize| true;
            if let Some(to) = self.best_place(target, any) {
                self.put(target, to);
            }
        }
    }

    /// Gives what rounding left over to the nodes that have the most above their share: what is there need not move.
    fn give_remainder(&mut self) {
        let whole: u64 = self.sums.iter().sum();
        let remainder = whole - self.shares.iter().sum::<u64>();
        let mut order: Vec<usize> = (0..self.sums.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.sums[*at].saturating_sub(self.shares[*at])));
        for at in order.into_iter().take(usize::try_from(remainder).unwrap_or(usize::MAX)) {
            self.shares[at] += 1;
        }
    }

    /// Lets every node that has more than its share give up what it would rather not have, as long as that helps.
    /// Whether anything moved.
    fn level_once(&mut self) -> bool {
        let mut order: Vec<usize> = (0..self.sums.len()).filter(|at| self.is_over(*at)).collect();
        order.sort_by(|a, b| self.relative(*b, 0, *a).cmp(&self.relative(*a, 0, *b)).then(a.cmp(b)));
        let mut moved = false;
        for from in order {
            for target in self.dearest_last(from) {
                if !self.is_over(from) {
                    break;
                }
                let extra = weight(&self.loads[target]);
                let helps =
                    |desk: &Self, to: usize| to != from && desk.relative(to, extra, from) < desk.relative(from, 0, to);
                if let Some(to) = self.best_place(target, helps) {
                    self.put(target, to);
                    moved = true;
                }
            }
        }
        moved
    }

    /// The targets on a node, the one that it scores lowest for first.
    fn dearest_last(&self, node: usize) -> Vec<usize> {
        let mut own: Vec<(f64, &str, usize)> = (0..self.loads.len())
            .filter(|t| self.homes[*t] == Some(node))
            .map(|t| {
                let target = self.loads[t].target;
                (self.placement.score_at(node, target), target, t)
            })
            .collect();
        own.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
        own.into_iter().map(|(_, _, t)| t).collect()
    }

    /// The best-ranked of the nodes that may have it and have room for it within their share; failing that, the one with
    /// the least load.
    fn best_place(&self, target: usize, may: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        let load = &self.loads[target];
        let extra = weight(load);
        let mut roomy: Option<(usize, f64)> = None;
        let mut least: Option<(usize, f64)> = None;
        for at in (0..self.sums.len()).filter(|at| may(self, *at)) {
            let score = self.placement.score_at(at, load.target);
            if self.sums[at] + extra <= self.shares[at] && roomy.is_none_or(|(_, best)| score > best) {
                roomy = Some((at, score));
            }
            let lighter = least.is_none_or(|(best, best_score)| {
                let (mine, its) = (self.relative(at, extra, best), self.relative(best, extra, at));
                mine < its || (mine == its && score > best_score)
            });
            if lighter {
                least = Some((at, score));
            }
        }
        roomy.or(least).map(|(at, _)| at)
    }

    fn put(&mut self, target: usize, to: usize) {
        let extra = weight(&self.loads[target]);
        if let Some(from) = self.homes[target].replace(to) {
            self.sums[from] -= extra;
        }
        self.sums[to] += extra;
    }

    fn is_over(&self, at: usize) -> bool {
        self.sums[at] > self.shares[at]
    }

    /// The load of a node with something added, times the weight of the node it is compared with: fractions compared
    /// without fractions.
    fn relative(&self, at: usize, extra: u64, against: usize) -> u64 {
        (self.sums[at] + extra).saturating_mul(self.node_weight(against))
    }

    fn node_weight(&self, at: usize) -> u64 {
        u64::from(self.placement.nodes[at].node.weight.clamp(1, super::MAX_WEIGHT))
    }
}

fn weight(load: &Load<'_>) -> u64 {
    u64::from(load.weight.max(1))
}
