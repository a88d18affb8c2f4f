"""Placement, which all languages share."""

import unittest
from pathlib import Path

from tenure_client.placement import rank, score

GOLDEN = Path(__file__).parents[3] / "crates/tenure-core/src/placement/golden.txt"


class TestPlacement(unittest.TestCase):
    def test_placement_is_that_of_all_languages(self):
        checked = 0
        for line in GOLDEN.read_text().splitlines():
            kind, *fields = line.split() or [""]
            if kind == "score":
                node, target, weight, _, wanted = fields
                self.assertAlmostEqual(score(node, target, int(weight)) / float(wanted), 1.0, 12, line)
            elif kind == "rank":
                target, nodes, wanted = fields
                weights = {name: int(weight) for name, weight in (node.split("=") for node in nodes.split(","))}
                self.assertEqual(rank(target, weights), wanted.split(","), line)
            else:
                continue
            checked += 1
        self.assertGreater(checked, 20)


if __name__ == "__main__":
    unittest.main()
