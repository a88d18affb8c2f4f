package tenure

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Verdict is what a holder may do.
type Verdict string

// The verdicts.
const (
	Held      Verdict = "held"      // Work: no other member can have taken over.
	Uncertain Verdict = "uncertain" // Pause: no heartbeat was confirmed in time, or the holdings are being read again.
	Lost      Verdict = "lost"      // Stop.
)

// Membership is a member of a group from Join to Leave. It sends heartbeats in the background, and joins again when its
// tenure lapsed. It is safe for concurrent use.
type Membership struct {
	client  *Client
	group   string
	member  string
	options JoinOptions
	// Whether another process began the tenure: it alone leaves, and joins again.
	inherited bool
	ctx       context.Context // Of the goroutines.
	stop      context.CancelFunc
	running   sync.WaitGroup
	poke      chan struct{} // Wakes the heartbeats.
	work      chan struct{} // Wakes the reconciler.
	notices   chan struct{} // Wakes the goroutine that calls Notify.
	done      chan struct{}
	turns     turns // Of the claims and connections.
	expiry    *time.Timer

	mutex     sync.Mutex
	ttl       time.Duration
	labels    map[string]string
	tenure    string
	confirmed instant // When the last confirmed heartbeat or join was sent.
	reason    string  // Why the tenure ended; empty while it has not.
	left      bool    // Leave was called.
	final     error   // Why the membership ended.
	pending   []Notice
	holdings
}

// call is a call within the group.
func (m *Membership) call(method string, effect effect, path ...string) *call {
	return groupCall(method, effect, m.group, path...)
}

func groupCall(method string, effect effect, group string, path ...string) *call {
	return &call{method: method, effect: effect, path: append([]string{"v1", "groups", group}, path...)}
}

// begin starts a tenure. The holdings of the one before are gone.
func (m *Membership) begin(tenure string, sent instant) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.loseAll("joined again")
	m.tenure, m.confirmed = tenure, sent
	if !m.left {
		m.reason = ""
	}
	m.holdings.begin()
	if m.expiry != nil {
		m.expiry.Reset(m.ttl)
	}
}

// Group is the name of the group.
func (m *Membership) Group() string { return m.group }

// Member is the name of the member.
func (m *Membership) Member() string { return m.member }

// Tenure is the current tenure, like gw-1@1732000000000000.
func (m *Membership) Tenure() string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.tenure
}

// Verdict says whether the member may work. It makes no call: the tenure is held for a ttl, less a twelfth, from when
// the last confirmed heartbeat was sent, by a clock that counts suspend.
func (m *Membership) Verdict() Verdict {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.verdict()
}

func (m *Membership) verdict() Verdict {
	age := now().since(m.confirmed)
	switch {
	case m.reason != "":
		return Lost
	case age >= m.ttl:
		m.loseAll("unconfirmed")
		return Lost
	case age >= m.ttl-m.ttl/12:
		return Uncertain
	}
	return Held
}

// Done is closed when the membership has ended: it left, or must not join again.
func (m *Membership) Done() <-chan struct{} { return m.done }

// Err is why the membership ended: nil before Done is closed and after Leave, else an *Error with a Reason.
func (m *Membership) Err() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.final
}

// SetLabels replaces the labels, also for a later join.
func (m *Membership) SetLabels(ctx context.Context, labels map[string]string) error {
	act, err := m.act(false)
	if err != nil {
		return err
	}
	if labels == nil {
		labels = map[string]string{}
	}
	request := m.call(http.MethodPut, changes, "tenures", act.tenure, "labels")
	request.body = map[string]any{"labels": labels}
	if err := act.do(ctx, request); err != nil {
		return err
	}
	m.setLabels(labels)
	return nil
}

func (m *Membership) setLabels(labels map[string]string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.labels = make(map[string]string, len(labels))
	for name, value := range labels {
		m.labels[name] = value
	}
}

// Leave ends the tenure and releases all that it holds. Stop the work first; all verdicts are Lost from now on. If the
// call fails, the store frees the holdings when the ttl is over.
func (m *Membership) Leave(ctx context.Context) error {
	m.mutex.Lock()
	if m.left {
		m.mutex.Unlock()
		return nil
	}
	m.left = true
	m.reason = first(m.reason, "left")
	m.loseAll("left")
	m.mutex.Unlock()
	m.stop()
	m.expiry.Stop()
	return m.turns.giveBack(ctx, leaving{}, func(ctx context.Context) error {
		m.running.Wait() // A join in flight may begin the tenure to end.
		if m.Err() != nil || m.inherited {
			return nil
		}
		return m.client.do(ctx, m.call(http.MethodDelete, changes, "tenures", m.Tenure()))
	})
}

type leaving struct{}

// end records that the store ended a tenure.
func (m *Membership) end(tenure, reason string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.tenure != tenure || m.reason != "" {
		return
	}
	m.reason = first(reason, "unknown")
	m.loseAll(m.reason)
	m.notice(Notice{Kind: NoticeEnded, Tenure: tenure, Reason: m.reason})
	wake(m.poke)
}

// expire closes the channels of lost leases when no heartbeat is confirmed for a whole ttl.
func (m *Membership) expire() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.verdict() != Lost {
		m.expiry.Reset(m.ttl - now().since(m.confirmed) + time.Millisecond)
	}
}

// beat sends heartbeats until the membership is over.
func (m *Membership) beat() {
	defer m.running.Done()
	defer close(m.done)
	pause := jitter(m.interval()*3/4, 0.3)
	joins := false // Whether a join without an answer may have begun a tenure.
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-m.poke:
		case <-time.After(pause):
		}
		m.mutex.Lock()
		tenure, reason := m.tenure, m.reason
		m.mutex.Unlock()
		switch {
		case m.ctx.Err() != nil:
			return
		case reason == "":
			pause = m.beatOnce(tenure)
		case !m.mayRejoin(reason):
			m.over(reason)
			return
		default:
			var over bool
			if over, pause = m.rejoin(tenure, &joins); over {
				return
			}
		}
	}
}

func (m *Membership) interval() time.Duration { return m.ttl / 3 }

func (m *Membership) beatTimeout() time.Duration {
	if timeout := m.ttl / 6; timeout < time.Second/2 {
		return timeout
	}
	return time.Second / 2
}

// beatOnce sends one heartbeat and returns the pause to the next.
func (m *Membership) beatOnce(tenure string) time.Duration {
	m.mutex.Lock()
	named, answered := m.listed, m.known
	m.mutex.Unlock()
	var answer beatAnswer
	request := m.call(http.MethodPut, reads, "tenures", tenure, "beat")
	request.answer, request.timeout, request.tries, request.pool = &answer, m.beatTimeout(), 1, beats
	request.body = map[string]any{"revision": named, "seen": answered}
	if m.inherited {
		// A release by an operator that was noticed here may be of a lease that another process works under.
		request.body = map[string]any{"seen": answered}
	}
	sent := now()
	err := m.client.do(m.ctx, request)
	if failed, ok := err.(*Error); ok {
		if failed.Code == CodeTenureEnded {
			m.end(tenure, failed.Reason)
			return 0
		}
		pause := jitter(m.interval()/4, 0.25)
		if failed.RetryAfter > pause && failed.RetryAfter < m.interval() {
			pause = failed.RetryAfter
		}
		return pause
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.tenure != tenure || m.reason != "" {
		return 0
	}
	m.verdict() // What was lost by time stays lost.
	if len(m.claims) > 0 && now().since(m.checked) >= m.options.CheckClaims {
		m.reassert = true // Another member's claim does not change our revision.
	}
	m.compare(answered, answer.Revision)
	if sent.since(m.confirmed) > 0 {
		m.confirmed = sent
		m.expiry.Reset(m.ttl - now().since(sent) + time.Millisecond)
	}
	return jitter(m.interval()*19/20, 0.05) - now().since(sent)
}

type beatAnswer struct {
	Expires  *int64 `json:"expires_in_ms"`
	Revision int64  `json:"revision"`
}

func (a *beatAnswer) complete() bool { return a.Expires != nil && a.Revision >= 0 }

func (m *Membership) mayRejoin(reason string) bool {
	return !m.options.NoRejoin && (reason == "lapsed" || reason == "unknown")
}

// rejoin makes one attempt to begin another tenure, unless another process of the same name has taken over. It returns
// whether the membership is over, and the pause to the next attempt.
func (m *Membership) rejoin(ended string, joins *bool) (bool, time.Duration) {
	retry := jitter(m.interval()/4, 0.25)
	if m.inherited {
		taken, sent, err := m.inherit(m.ctx, ended)
		if err != nil {
			return false, retry
		}
		m.rejoined(taken, sent)
		return false, m.interval() * 3 / 4
	}
	if !*joins {
		taken, err := m.isTaken(ended)
		if err != nil {
			return false, retry
		}
		if taken {
			m.over("superseded")
			return true, 0
		}
	}
	joined, sent, err := m.join(context.Background(), m.beatTimeout()*2, 1)
	if err != nil {
		if failed, ok := err.(*Error); ok && failed.Outcome == Unknown {
			*joins = true
		}
		return false, retry
	}
	*joins = false
	m.rejoined(joined, sent)
	return false, m.interval() * 3 / 4
}

func (m *Membership) rejoined(joined joinAnswer, sent instant) {
	m.begin(joined.Tenure, sent)
	m.mutex.Lock()
	m.notice(Notice{Kind: NoticeRejoined, Tenure: joined.Tenure})
	m.mutex.Unlock()
	wake(m.work)
}

// isTaken reports whether a newer tenure of this member is alive.
func (m *Membership) isTaken(ended string) (bool, error) {
	var found Member
	request := m.call(http.MethodGet, reads, "members", m.member)
	request.answer, request.timeout, request.tries = &found, m.beatTimeout(), 1
	if err := m.client.do(m.ctx, request); err != nil {
		if Code(err) == CodeNotFound {
			return false, nil
		}
		return false, err
	}
	return found.Alive && term(found.Tenure) > term(ended), nil
}

// term is the number of a tenure, which rises with every join.
func term(tenure string) int64 {
	number, err := strconv.ParseInt(tenure[strings.LastIndexByte(tenure, '@')+1:], 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// over ends the membership for good.
func (m *Membership) over(reason string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.reason, m.final = reason, ended(m.tenure, reason)
	m.stop()
}

// wake fills a channel of capacity one.
func wake(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
