//! Placement: the preferred node of each target. It is only a preference; the lease is the authority.
//!
//! Weighted rendezvous hashing (Thaler and Ravishankar, 1998): every node has a score for a target, and the highest
//! score wins. Nodes need to agree only on names and weights. A node that leaves moves only its own targets, and one
//! that joins takes only those it wins. The computation in any language:
//!
//! 1. `h` = 64-bit FNV-1a over the bytes of the node's name, one byte `0x00`, the bytes of the target's name. Names
//!    never contain that byte, so no two pairs have the same input.
//! 2. `h` = the finaliser of `SplitMix64` over `h` (Stafford's variant 13 of the 64-bit finaliser of `MurmurHash3`).
//! 3. `u` = the 53 high bits of `h`, divided by 2^53: in `[0, 1)`, exact in a double.
//! 4. `score = -weight / ln(u)`; for `u = 0` that is 0. (The logarithmic method of weighted rendezvous hashing: of nodes
//!    with weights `a` and `b` the first wins with probability `a / (a + b)`, and a change of one weight moves only
//!    targets to or from that node.)
//! 5. Equal scores: the smaller name wins, byte by byte.
//!
//! `golden.txt` beside this file pins hashes, scores and ranks. Hashes are exact. `ln` may differ in its last bit
//! between platforms, so two nodes may disagree on a rank about once in 10^15 pairs; the lease decides.
//!
//! # Why the finaliser
//!
//! The last input byte passes through only one multiplication of FNV-1a, so the high bits of inputs that differ only
//! there are close together. Numbered names are such inputs. The load of the busiest node divided by the mean (1.00 is
//! perfect; the last column shows a random placement):
//!
//! | nodes × targets | plain FNV-1a | with the finaliser | by chance |
//! |---|---|---|---|
//! | `node-1`…`3` × `endpoint-00001`…`00300` | 2.99 | 1.06 | 1.07 |
//! | `node-1`…`3` × `endpoint-00001`…`10000` | 1.37 | 1.01 | 1.02 |
//! | `node-1`…`8` × `endpoint-00001`…`10000` | 1.44 | 1.02 | 1.02 |
//! | `host-1`…`16` × `dev-00001`…`10000` | 1.76 | 1.06 | 1.05 |
//! | `host-1`…`64` × `dev-00001`…`10000` | 3.20 | 1.25 | 1.16 |
//! | `host-1`…`64` × `dev-00001`…`50000` | 2.16 | 1.08 | 1.09 |
//!
//! (`cargo test -p tenure-core --lib placement -- --nocapture figures` prints them.)

mod level;
#[cfg(test)]
mod tests;

pub use level::{Load, level};

use std::cmp::Ordering;

use crate::id::MemberId;

/// The maximum weight of a node.
pub const MAX_WEIGHT: u32 = 1_000;

/// A node for targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The member.
    pub name: MemberId,
    /// Its share of the targets relative to the other nodes, 1 to [`MAX_WEIGHT`]. A value outside is clamped; to give a
    /// node no targets, drain it.
    pub weight: u32,
}

impl Node {
    /// A node with the default weight 1.
    #[must_use]
    pub fn new(name: MemberId) -> Self {
        Self { name, weight: 1 }
    }
}

/// The hash of a node and a target: steps 1 and 2 of the module. O(length of the names).
#[must_use]
pub fn hash(node: &str, target: &str) -> u64 {
    finalise(fnv(seed(node), target.as_bytes()))
}

/// The score of a node for a target: steps 1 to 4 of the module. Higher is better, 0 is the lowest. O(length of the
/// names).
#[must_use]
pub fn score(node: &str, target: &str, weight: u32) -> f64 {
    score_of(hash(node, target), weight)
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// 64-bit FNV-1a (Fowler, Noll, Vo), continued from a state.
fn fnv(state: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(state, |state, byte| (state ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

/// The common prefix state of all hashes of a node.
fn seed(node: &str) -> u64 {
    fnv(fnv(FNV_OFFSET, node.as_bytes()), &[0])
}

/// The finaliser of `SplitMix64`. The clock draws randomness with the same constants. Here they are a contract with
/// other programs that compute placements, so they are repeated.
fn finalise(mut h: u64) -> u64 {
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

#[expect(clippy::cast_precision_loss, reason = "53 bits are what a double holds exactly")]
fn score_of(hash: u64, weight: u32) -> f64 {
    let unit = (hash >> 11) as f64 / (1u64 << 53) as f64;
    -f64::from(weight.clamp(1, MAX_WEIGHT)) / unit.ln()
}

/// A set of nodes that can rank targets.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    nodes: Vec<Ready>,
}

#[derive(Debug, Clone)]
struct Ready {
    node: Node,
    seed: u64,
}

impl Placement {
    /// Takes the nodes for targets. Of several nodes with the same name, the first counts. O(nodes × log nodes).
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = Node>) -> Self {
        let mut nodes: Vec<Ready> = nodes
            .into_iter()
            .map(|node| Ready {
                seed: seed(node.name.as_str()),
                node,
            })
            .collect();
        nodes.sort_by(|a, b| a.node.name.cmp(&b.node.name));
        nodes.dedup_by(|later, first| later.node.name == first.node.name);
        Self { nodes }
    }

    /// The nodes, by name.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &Node> {
        self.nodes.iter().map(|ready| &ready.node)
    }

    /// The preferred node of a target; `None` without nodes. O(nodes).
    #[must_use]
    pub fn preferred(&self, target: &str) -> Option<&MemberId> {
        // `max_by` returns the last of equal elements; reversed, that is the smaller name.
        let best = self
            .scored(target)
            .rev()
            .max_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(at, _)| at)?;
        Some(&self.nodes[best].node.name)
    }

    /// All nodes, best first. O(nodes × log nodes).
    #[must_use]
    pub fn rank(&self, target: &str) -> Vec<&MemberId> {
        let order = self.order(target);
        order.into_iter().map(|at| &self.nodes[at].node.name).collect()
    }

    /// The number of nodes that precede this one for the target; `None` if it is not among the nodes. O(nodes).
    #[must_use]
    pub fn position(&self, target: &str, node: &MemberId) -> Option<usize> {
        let at = self.index(node)?;
        let own = self.score_at(at, target);
        let better = |(other, score): &(usize, f64)| match score.total_cmp(&own) {
            Ordering::Greater => true,
            Ordering::Equal => *other < at,
            Ordering::Less => false,
        };
        Some(self.scored(target).filter(better).count())
    }

    fn index(&self, node: &MemberId) -> Option<usize> {
        self.nodes.binary_search_by(|ready| ready.node.name.cmp(node)).ok()
    }

    fn score_at(&self, at: usize, target: &str) -> f64 {
        let ready = &self.nodes[at];
        score_of(finalise(fnv(ready.seed, target.as_bytes())), ready.node.weight)
    }

    fn scored(&self, target: &str) -> impl DoubleEndedIterator<Item = (usize, f64)> {
        (0..self.nodes.len()).map(move |at| (at, self.score_at(at, target)))
    }

    /// Indexes of the nodes, best first. The sort is stable and the nodes are sorted by name, so the smaller name comes
    /// first among equal scores.
    fn order(&self, target: &str) -> Vec<usize> {
        let mut scored: Vec<_> = self.scored(target).collect();
        scored.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        scored.into_iter().map(|(at, _)| at).collect()
    }
}
