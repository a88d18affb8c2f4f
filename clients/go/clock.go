package tenure

import (
	"math/rand"
	"sync"
	"time"
)

// fresh is the age at which the estimate of the store's clock is renewed.
const fresh = 5 * time.Second

// now reads the clock that counts suspend. NewClient has checked that it can be read.
func now() instant {
	at, _ := readClock()
	return at
}

// jitter spreads a pause by up to a fraction of it in both directions.
func jitter(pause time.Duration, fraction float64) time.Duration {
	return time.Duration(float64(pause) * (1 + fraction*(2*rand.Float64()-1)))
}

func longer(a, b time.Duration) time.Duration {
	if a > b {
		return a
	}
	return b
}

func shorter(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

// storeClock is a lower bound of the store's clock, from its answers. It is the source of Tenure-Not-After, which keeps a
// call from taking effect after its caller gave up.
type storeClock struct {
	mutex   sync.Mutex
	known   bool
	shown   time.Time
	arrived instant
	heard   instant
}

// learn records an answer that showed this time, requested at asked and received at arrived. The bound with the least
// delay stays, unless the answer contradicts it (the store's clock was set back) or it is old.
func (c *storeClock) learn(shown time.Time, asked, arrived instant) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.heard = arrived
	keep := c.known && arrived.since(c.arrived) <= fresh &&
		c.atLeast(arrived).After(shown) && !c.atLeast(asked).After(shown)
	if !keep {
		c.known, c.shown, c.arrived = true, shown, arrived
	}
}

// atLeast is the bound at a local instant. The two clocks drift by at most one part in a thousand.
func (c *storeClock) atLeast(at instant) time.Time {
	passed := at.since(c.arrived)
	if passed < 0 {
		return c.shown.Add(passed + passed/1000)
	}
	return c.shown.Add(passed - passed/1000)
}

// notAfter is the store's time at which a caller that waits this long gives up; false if the clock is not known well.
func (c *storeClock) notAfter(patience time.Duration) (string, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	at := now()
	if !c.known || at.since(c.heard) > fresh {
		return "", false
	}
	limit := c.atLeast(at).Add(patience - patience/1000)
	return limit.UTC().Format("2006-01-02T15:04:05.000000Z"), true
}

// forget drops the estimate, so that the next call reads the store's clock.
func (c *storeClock) forget() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.known = false
}
