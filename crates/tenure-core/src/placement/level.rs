//! Bounded load: shares that differ by at most one target, which places some targets away from their preferred nodes.
//!
//! Rendezvous hashing is even on average, but not for few targets: 8 targets on 3 nodes give 5/1/2 as easily as 3/3/2.
//! Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam, 2016) caps every node at its share and gives
//! the rest to the next in rank. This is that idea with a tight cap and with memory: a placed target stays unless its
//! node has more than its share and another has strictly less. So a node that leaves moves only its own targets, and
//! one that joins takes exactly its share: the minimum number of moves that levels the load.
//!
//! Every move lowers the higher of two relative loads, so levelling terminates.

use super::Placement;
use crate::id::MemberId;

/// The maximum rounds of levelling in one call. With equal weights the second round finds nothing to do.
const ROUNDS: usize = 8;

/// A target and its current node.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// Its name.
    pub target: &'a str,
    /// Its share of a node's load, at least 1.
    pub weight: u32,
    /// Its current node. One that is not in the placement counts as none.
    pub on: Option<&'a MemberId>,
}

/// Assigns every target a node so that the loads are level by the nodes' weights. The result is in the order of the
/// loads, with `None` only without nodes. It does not depend on the input order, and it is stable: placed targets stay.
/// With weights of one, every node has between the floor and the ceiling of `targets × its share`. O(targets × (nodes +
/// log targets)).
#[must_use]
pub fn level<'p>(placement: &'p Placement, loads: &[Load<'_>]) -> Vec<Option<&'p MemberId>> {
    if placement.nodes.is_empty() {
        return vec![None; loads.len()];
    }
    let mut leveler = Leveler::new(placement, loads);
    leveler.place_free();
    leveler.give_remainder();
    for _ in 0..ROUNDS {
        if !leveler.level_once() {
            break;
        }
    }
    let name = |at: usize| &placement.nodes[at].node.name;
    leveler.homes.into_iter().map(|home| home.map(name)).collect()
}

struct Leveler<'a> {
    placement: &'a Placement,
    loads: &'a [Load<'a>],
    homes: Vec<Option<usize>>,
    /// The weight on each node.
    sums: Vec<u64>,
    /// Its share of the total: first rounded down, then with its part of the remainder.
    shares: Vec<u64>,
}

impl<'a> Leveler<'a> {
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
        let mut leveler = Self {
            placement,
            loads,
            homes,
            sums,
            shares: Vec::new(),
        };
        let weights: u64 = (0..placement.nodes.len()).map(|at| leveler.node_weight(at)).sum();
        leveler.shares = (0..placement.nodes.len())
            .map(|at| whole * leveler.node_weight(at) / weights)
            .collect();
        leveler
    }

    /// Finds a node for each unplaced target, heavy ones first while there is room for them.
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

    /// Gives the rounding remainder to the nodes with the most excess, so that fewer targets move.
    fn give_remainder(&mut self) {
        let whole: u64 = self.sums.iter().sum();
        let remainder = whole - self.shares.iter().sum::<u64>();
        let mut order: Vec<usize> = (0..self.sums.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.sums[*at].saturating_sub(self.shares[*at])));
        for at in order.into_iter().take(usize::try_from(remainder).unwrap_or(usize::MAX)) {
            self.shares[at] += 1;
        }
    }

    /// Moves the least preferred targets off nodes above their share, as long as that levels the load. Returns whether
    /// any target moved.
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
                let helps = |leveler: &Self, to: usize| {
                    to != from && leveler.relative(to, extra, from) < leveler.relative(from, 0, to)
                };
                if let Some(to) = self.best_place(target, helps) {
                    self.put(target, to);
                    moved = true;
                }
            }
        }
        moved
    }

    /// The targets on a node, by ascending score.
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

    /// The best-ranked allowed node with room within its share; otherwise the least loaded one.
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

    /// The load of a node plus something, times the weight of the node it is compared with: a comparison of fractions
    /// in integers.
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
