package tenure

import (
	"context"
	"net/http"
	"time"
)

// maxWait is the longest wait of one call; longer ones are asked for in parts, each at the end of the queue.
const maxWait = time.Minute

// waited is how long a call waited at least if it waited at all. It is asked again soon: a part is over, or something in between
// cuts long requests.
const waited = 250 * time.Millisecond

// AcquireOptions configure an acquire. All fields may be empty.
type AcquireOptions struct {
	// Wait for the lease this long, first come first served (after a minute at the end of the queue again). By default a
	// lease that is held is an error.
	Wait time.Duration
	// Holders that the lease may have at the same time, as a semaphore. By default it is exclusive. All ask for the same.
	Holders int
}

// Lease is a lease that was acquired. It is safe for concurrent use.
type Lease struct {
	m     *Membership
	name  string
	token int64
	// The revision in the answer that granted it.
	revision   int64
	place      int
	generation int64
	waited     time.Duration
	lost       chan struct{}
	reason     string // Why it is lost; empty while it is not.
}

// Acquire acquires a lease. Release it, or Leave; it is free at the end of the ttl if the process dies. A lease that
// this membership holds already is returned as it is: goroutines that exclude each other need a mutex as well.
func (m *Membership) Acquire(ctx context.Context, lease string, options AcquireOptions) (*Lease, error) {
	if ctx.Err() != nil {
		return nil, gaveUp(ctx, Unchanged)
	}
	m.mutex.Lock()
	for busy := m.busy[lease]; busy != nil; busy = m.busy[lease] {
		m.mutex.Unlock()
		select {
		case <-ctx.Done():
			return nil, gaveUp(ctx, Unchanged)
		case <-busy:
		}
		m.mutex.Lock()
	}
	m.verdict() // Drops what was lost by time.
	if held := m.leases[lease]; held != nil {
		m.mutex.Unlock()
		return held, nil
	}
	m.busy[lease], m.acquired = make(chan struct{}), true
	m.mutex.Unlock()
	defer m.free(lease)
	for {
		got, older, err := m.acquire(ctx, lease, options)
		if err != nil || !older {
			return got, err
		}
		// A grant that was lost here, or was given up: it goes back, so that no token has two holders.
		if _, err := m.release(ctx, lease, got.token, ""); err != nil {
			return nil, err
		}
	}
}

type acquireAnswer struct {
	revised
	Outcome    string `json:"outcome"`
	Token      int64  `json:"token"`
	Place      int    `json:"place"`
	Generation int64  `json:"generation"`
}

// generation is the token of an answer that names none.
func (a *acquireAnswer) generation() int64 {
	if a.Generation > 0 {
		return a.Generation
	}
	return a.Token
}

func (a *acquireAnswer) complete() bool { return a.Outcome != "" && a.Token > 0 && a.Place >= 0 }

// acquire asks until the lease is granted or the wait is over. It also returns whether the grant is older than the call.
func (m *Membership) acquire(ctx context.Context, lease string, options AcquireOptions) (*Lease, bool, error) {
	for began := now(); ; {
		act, err := m.act(false)
		if err != nil {
			return nil, false, err
		}
		answer := &acquireAnswer{}
		asked := now()
		request := m.acquireCall(act, lease, options.Holders, options.Wait-asked.since(began))
		request.answer = answer
		err = act.do(ctx, request)
		if err == nil {
			got := &Lease{m: m, name: lease, token: answer.Token, revision: answer.Revision, place: answer.Place,
				generation: answer.generation(), waited: now().since(began), lost: make(chan struct{})}
			if answer.Outcome == "kept" && answer.Token <= act.known && !m.inherited {
				return got, true, nil
			}
			return got, false, m.hold(got, act)
		}
		failed := err.(*Error)
		if request.unheard {
			m.mutex.Lock()
			m.mayHave(lease)
			m.mutex.Unlock()
			wake(m.work)
		}
		rest := options.Wait - now().since(began)
		if rest <= 0 || !failed.mayWait() || ctx.Err() != nil {
			return nil, false, err
		}
		pause := longer(jitter(shorter(m.interval()/8, time.Second), 0.5), failed.RetryAfter)
		if now().since(asked) >= waited {
			pause = jitter(firstTry, 0.5)
		}
		if sleep(ctx, shorter(pause, rest)) != nil {
			return nil, false, gaveUp(ctx, failed.Outcome)
		}
	}
}

func (m *Membership) acquireCall(act *act, lease string, holders int, wait time.Duration) *call {
	body := map[string]any{"tenure": act.tenure, "seen": act.known}
	request := m.call(http.MethodPost, changes, "leases", lease, "acquire")
	request.body = body
	if holders > 0 {
		body["holders"] = holders
	}
	if wait > 0 {
		wait = shorter(wait, m.client.part)
		body["wait_ms"] = millis(wait)
		request.timeout, request.tries, request.pool = wait+m.client.timeout, 1, waits
	}
	return request
}

// AcquireMany acquires those of these leases that are free, 200 in a call, and returns them, and those that are held here already.
// After an error the calls before it have taken effect, and their leases are returned.
func (m *Membership) AcquireMany(ctx context.Context, leases []string) ([]*Lease, error) {
	all := []*Lease{}
	for len(leases) > 0 {
		part := leases
		if len(part) > batch {
			part = part[:batch]
		}
		leases = leases[len(part):]
		got, err := m.acquirePart(ctx, m.take(part, &all))
		all = append(all, got...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// take marks leases as being acquired. Those that are held are added to held; those that another call acquires are left to it.
func (m *Membership) take(leases []string, held *[]*Lease) []string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.verdict() // Drops what was lost by time.
	free := []string{}
	for _, name := range leases {
		if lease := m.leases[name]; lease != nil {
			*held = append(*held, lease)
		} else if m.busy[name] == nil {
			m.busy[name], m.acquired = make(chan struct{}), true
			free = append(free, name)
		}
	}
	return free
}

type acquireManyAnswer struct {
	revised
	Results []struct {
		Lease string `json:"lease"`
		acquireAnswer
	} `json:"results"`
}

func (m *Membership) acquirePart(ctx context.Context, leases []string) ([]*Lease, error) {
	defer func() {
		for _, name := range leases {
			m.free(name)
		}
	}()
	if len(leases) == 0 {
		return nil, nil
	}
	act, err := m.act(false)
	if err != nil {
		return nil, err
	}
	answer := &acquireManyAnswer{}
	request := m.call(http.MethodPost, changes, "leases-acquire")
	request.body, request.answer = map[string]any{"tenure": act.tenure, "leases": leases, "seen": act.known}, answer
	if err := act.do(ctx, request); err != nil {
		if request.unheard {
			m.mutex.Lock()
			for _, name := range leases {
				m.mayHave(name)
			}
			m.mutex.Unlock()
			wake(m.work)
		}
		return nil, err
	}
	got := []*Lease{}
	for _, result := range answer.Results {
		if result.Outcome != "granted" && result.Outcome != "kept" || !result.complete() {
			continue
		}
		lease := &Lease{m: m, name: result.Lease, token: result.Token, revision: answer.Revision, place: result.Place,
			generation: result.generation(), lost: make(chan struct{})}
		if result.Outcome == "kept" && result.Token <= act.known && !m.inherited {
			// A grant that was lost here, or was given up: the next list shows it, and it goes back.
			continue
		}
		if err := m.hold(lease, act); err != nil {
			return got, err
		}
		got = append(got, lease)
	}
	return got, nil
}

// mayWait reports whether a later attempt may get the lease.
func (e *Error) mayWait() bool {
	return e.passes() || e.Code == CodeLeaseHeld || e.Code == CodeUnsettled
}

// hold adds a granted lease to the holdings, unless the tenure has ended.
func (m *Membership) hold(lease *Lease, act *act) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.epoch != act.epoch || m.reason != "" {
		return ended(act.tenure, m.reason)
	}
	m.leases[lease.name] = lease
	m.verdict()
	if lease.revision < m.listed && m.shown[lease.name] != lease.token {
		// The list after the grant did not show it: an operator may have released this very grant.
		m.doubt()
		wake(m.work)
	}
	return nil
}

// Name is the name of the lease.
func (l *Lease) Name() string { return l.name }

// Token is the fencing token: higher than that of every earlier grant. Send it with every write, so that storage can
// reject late writers.
func (l *Lease) Token() int64 { return l.token }

// Place is the place of a lease with several holders, from 0. Each place has fencing tokens of its own.
func (l *Lease) Place() int { return l.place }

// Generation is the number that all holders of the lease have in common. It rises each time that the lease is granted while
// no place of it is taken; that of an exclusive lease is the token.
func (l *Lease) Generation() int64 { return l.generation }

// Waited is how long the acquire waited.
func (l *Lease) Waited() time.Duration { return l.waited }

// Verdict says whether the holder may work. It makes no call. Ask before each write; once it is Lost, it stays Lost.
func (l *Lease) Verdict() Verdict {
	l.m.mutex.Lock()
	defer l.m.mutex.Unlock()
	verdict := l.m.verdict()
	switch {
	case l.reason != "":
		return Lost
	case l.m.doubted && verdict == Held:
		return Uncertain
	}
	return verdict
}

// Held reports whether the verdict is Held.
func (l *Lease) Held() bool { return l.Verdict() == Held }

// Lost is closed when the lease is lost or released.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Reason is why the lease is lost: released, left, gone, unconfirmed, or why the tenure ended; empty while it is not.
func (l *Lease) Reason() string {
	l.m.mutex.Lock()
	defer l.m.mutex.Unlock()
	return l.reason
}

// Context returns a context that is cancelled when the lease is lost. A paused process runs on for a moment before it
// is: ask Verdict before each write as well.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	go func() {
		select {
		case <-l.lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Release releases the lease. Stop the work first; the verdict is Lost from now on. If the call fails, it is repeated in
// the background.
func (l *Lease) Release(ctx context.Context) error {
	_, err := l.release(ctx, "")
	return err
}

// HandOff releases the lease and reserves it for a member, which has a few seconds to acquire it. It returns false if
// that member is not alive, so that the lease is free.
func (l *Lease) HandOff(ctx context.Context, member string) (bool, error) {
	outcome, err := l.release(ctx, member)
	return outcome == "reserved", err
}

func (l *Lease) release(ctx context.Context, to string) (string, error) {
	m := l.m
	m.mutex.Lock()
	current := m.leases[l.name] == l && m.reason == ""
	reason := l.reason
	l.lose("released")
	if current {
		delete(m.leases, l.name)
		m.busy[l.name] = make(chan struct{})
	}
	m.mutex.Unlock()
	if !current {
		return "", &Error{Code: CodeNotHolder, Detail: l.name + " was not held any more: " + reason, Outcome: Unchanged}
	}
	outcome := ""
	err := runOn(ctx, func(ctx context.Context) (err error) {
		defer m.free(l.name)
		outcome, err = m.release(ctx, l.name, l.token, to)
		return err
	}, func(bool, error) {})
	if err != nil {
		return "", err
	}
	return outcome, nil
}

// release releases a grant at the store.
func (m *Membership) release(ctx context.Context, lease string, token int64, to string) (string, error) {
	act, err := m.act(true)
	if err != nil {
		return "", err
	}
	var answer struct {
		revised
		Outcome string `json:"outcome"`
	}
	body := map[string]any{"tenure": act.tenure, "token": token, "seen": act.known}
	if to != "" {
		body["to"] = to
	}
	request := m.call(http.MethodPost, changes, "leases", lease, "release")
	request.body, request.answer = body, &answer
	err = act.do(ctx, request)
	if err == nil || Code(err) == CodeNotHolder {
		m.mutex.Lock()
		delete(m.perhaps, lease)
		m.mutex.Unlock()
	}
	if Code(err) == CodeNotHolder && request.unheard {
		// An attempt without an answer released it: no other member could hold it otherwise.
		if to != "" {
			return "reserved", nil
		}
		return "released", nil
	}
	if err == nil && request.unheard && to != "" {
		return "reserved", nil
	}
	if code := Code(err); err != nil && code != CodeNotHolder && code != CodeTenureEnded {
		m.mutex.Lock()
		m.mayHave(lease) // If it is still ours, the list shows it, and it is released again.
		m.mutex.Unlock()
		wake(m.work)
	}
	return answer.Outcome, err
}

// lose loses the lease for good.
func (l *Lease) lose(reason string) {
	if l.reason != "" {
		return
	}
	l.reason = reason
	close(l.lost)
	if reason != "released" && reason != "left" {
		l.m.notice(Notice{Kind: NoticeLeaseLost, Tenure: l.m.tenure, Reason: reason, Lease: l})
	}
}
