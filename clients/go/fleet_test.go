package tenure

import (
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestPlacementIsThatOfAllLanguages(t *testing.T) {
	golden, err := os.ReadFile("../../crates/tenure-core/src/placement/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, line := range strings.Split(string(golden), "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 6 && fields[0] == "score":
			weight, _ := strconv.Atoi(fields[3])
			wanted, _ := strconv.ParseFloat(fields[5], 64)
			if got := Score(fields[1], fields[2], weight); math.Abs(got-wanted) > wanted*1e-12 {
				t.Error(line, got)
			}
			if hash := strconv.FormatUint(placementHash(fields[1], fields[2]), 16); hash != strings.TrimLeft(fields[4], "0") {
				t.Error(line, hash)
			}
		case len(fields) == 4 && fields[0] == "rank":
			nodes := map[string]int{}
			for _, node := range strings.Split(fields[2], ",") {
				name, weight, _ := strings.Cut(node, "=")
				nodes[name], _ = strconv.Atoi(weight)
			}
			if got := strings.Join(Rank(fields[1], nodes), ","); got != fields[3] {
				t.Error(line, got)
			}
		default:
			continue
		}
		checked++
	}
	if checked < 20 {
		t.Fatal(checked, "vectors")
	}
}
