package tenure

import (
	"math"
	"sort"
)

// Score is how much a node of a fleet is preferred for a target: higher is better. It is weighted rendezvous hashing, as all
// programs of Tenure compute it (crates/tenure-core/src/placement/golden.txt pins the results).
func Score(node, target string, weight int) float64 {
	if weight < 1 {
		weight = 1
	}
	if weight > 1000 {
		weight = 1000
	}
	unit := float64(placementHash(node, target)>>11) / (1 << 53)
	if unit == 0 {
		return 0
	}
	return -float64(weight) / math.Log(unit)
}

// Rank orders nodes, given with their weights, for a target, best first. It is only a preference; the lease decides.
func Rank(target string, nodes map[string]int) []string {
	names, scores := make([]string, 0, len(nodes)), make(map[string]float64, len(nodes))
	for name, weight := range nodes {
		names, scores[name] = append(names, name), Score(name, target, weight)
	}
	sort.Slice(names, func(i, j int) bool {
		if a, b := scores[names[i]], scores[names[j]]; a != b {
			return a > b
		}
		return names[i] < names[j]
	})
	return names
}

// placementHash is FNV-1a and the finaliser of SplitMix64.
func placementHash(node, target string) uint64 {
	hash := uint64(0xcbf29ce484222325)
	for _, part := range []string{node, "\x00", target} {
		for i := 0; i < len(part); i++ {
			hash = (hash ^ uint64(part[i])) * 0x100000001b3
		}
	}
	hash = (hash ^ hash>>30) * 0xbf58476d1ce4e5b9
	hash = (hash ^ hash>>27) * 0x94d049bb133111eb
	return hash ^ hash>>31
}
