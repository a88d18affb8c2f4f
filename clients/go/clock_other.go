//go:build !linux

package tenure

import "time"

// instant is a reading of the monotonic and the wall clock. Here the monotonic clock may stop during suspend, and the
// wall clock may be set; the larger difference is never too small because of either alone.
type instant struct{ at time.Time }

func readClock() (instant, error) {
	return instant{time.Now()}, nil
}

// since is the time from earlier to i.
func (i instant) since(earlier instant) time.Duration {
	monotonic, wall := i.at.Sub(earlier.at), i.at.Round(0).Sub(earlier.at.Round(0))
	if wall > monotonic {
		return wall
	}
	return monotonic
}
