"""The preferred nodes of a target: weighted rendezvous hashing, as all programs of Tenure compute it.

It is only a preference; the lease decides. `crates/tenure-core/src/placement/golden.txt` pins the results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

_MASK = (1 << 64) - 1
_LARGEST = 1000


def score(node: str, target: str, weight: int = 1) -> float:
    """Higher is better."""
    unit = (_hash(node, target) >> 11) / (1 << 53)
    return -min(max(weight, 1), _LARGEST) / math.log(unit) if unit else 0.0


def rank(target: str, nodes: Mapping[str, int]) -> list[str]:
    """The nodes, given with their weights, best first."""
    return sorted(nodes, key=lambda node: (-score(node, target, nodes[node]), node.encode()))


def _hash(node: str, target: str) -> int:
    hashed = 0xCBF29CE484222325
    for byte in node.encode() + b"\0" + target.encode():  # FNV-1a.
        hashed = (hashed ^ byte) * 0x100000001B3 & _MASK
    hashed = (hashed ^ hashed >> 30) * 0xBF58476D1CE4E5B9 & _MASK  # The finaliser of SplitMix64.
    hashed = (hashed ^ hashed >> 27) * 0x94D049BB133111EB & _MASK
    return hashed ^ hashed >> 31
