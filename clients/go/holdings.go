package tenure

import (
	"context"
	"errors"
	"net/http"
	"net/url"
)

const (
	listAttempts = 4   // Lists that are tried while our own calls change the holdings in between.
	batch        = 200 // Claims or connections in one call: the store makes as many in one step.
	maxPages     = 10_000
)

// errBusy says that a call changes a thing at the moment.
var errBusy = errors.New("busy")

// holdings is what a membership holds. The store numbers each change of the holdings of a tenure (its revision), and
// beats compare that number, so that a lease that the store forgot or took away is noticed.
type holdings struct {
	epoch  int // Counts the tenures.
	leases map[string]*Lease
	busy   map[string]chan struct{} // Leases that are being acquired or released, until it is done.
	claims map[claimKey]bool
	// The epochs of the attached connections.
	connections map[connectionKey]int64
	known       int64            // The highest revision of any answer.
	listed      int64            // The revision at which the leases were last listed; the only one that beats name.
	shown       map[string]int64 // The tokens that this list showed of leases that were being acquired.
	acts        int              // Calls in flight that may change the holdings.
	late        bool             // A call in flight has explained an unknown revision once.
	doubts      int
	doubted     bool // The leases are uncertain until they are listed.
	acquired    bool // Whether a lease was ever asked for under this tenure.
	// Leases that may be ours at the store although none is here, under an inherited tenure, and from when on a list decides.
	perhaps  map[string]instant
	look     bool    // The leases have to be listed.
	reassert bool    // The claims have to be repeated.
	checked  instant // When they were repeated last.
	reattach bool    // The connections have to be attached again.
}

type claimKey struct{ registry, key string }

// begin starts the holdings of a tenure. Claims and connections of the one before are made again.
func (h *holdings) begin() {
	again := h.epoch > 0
	*h = holdings{epoch: h.epoch + 1, leases: map[string]*Lease{}, busy: h.busy, claims: h.claims,
		connections: h.connections, acquired: len(h.busy) > 0, perhaps: map[string]instant{}, reassert: again, checked: now(), reattach: again}
}

// compare compares the revision in a beat's answer with the highest that was known when the beat was sent.
func (m *Membership) compare(answered, seen int64) {
	switch {
	case seen < answered:
		// The store lost its latest writes.
		m.known, m.reassert, m.reattach = seen, true, true
		m.doubt()
	case seen > m.known && m.acts > 0 && !m.late:
		// Probably a call in flight; if not, the next beat shows it.
		m.late = true
		return
	case seen > m.known:
		// An answer was lost, or an operator released a lease.
		m.known, m.reassert = seen, true
		m.doubt()
	case seen != m.listed:
		// Our own calls explain it. List once all the same: they may hide an earlier change.
		m.look = true
	}
	m.late = false
	if !m.acquired {
		m.listed, m.look, m.doubted = seen, false, false
	}
	if m.look || m.reassert || m.reattach {
		wake(m.work)
	}
}

func (m *Membership) doubt() {
	m.doubts++
	m.doubted, m.look = true, true
}

// loseAll loses all leases for good. If the tenure recovers, the store still has them: they are listed and released.
func (m *Membership) loseAll(reason string) {
	for name, lease := range m.leases {
		delete(m.leases, name)
		lease.lose(reason)
		m.mayHave(name)
	}
}

// mayHave has a lease listed, and released if it is ours.
func (m *Membership) mayHave(lease string) {
	m.look = true
	if m.inherited {
		m.perhaps[lease] = now() // Counts from when its last call can no longer take effect.
	}
}

// act is a call that may change the holdings of a tenure.
type act struct {
	m      *Membership
	tenure string
	epoch  int
	known  int64 // The highest revision known before it.
}

// act begins one. A tenure that is lost may only release.
func (m *Membership) act(release bool) (*act, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.reason != "" || !release && m.verdict() == Lost {
		return nil, ended(m.tenure, m.reason)
	}
	m.acts++
	return &act{m, m.tenure, m.epoch, m.known}, nil
}

// revised is the part of an answer that names the revision.
type revised struct {
	Revision int64 `json:"revision"`
}

func (r *revised) revision() int64 { return r.Revision }

// do makes the call.
func (a *act) do(ctx context.Context, call *call) error {
	m := a.m
	err := m.client.do(ctx, call)
	if Code(err) == CodeTenureEnded {
		m.end(a.tenure, err.(*Error).Reason)
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.epoch != a.epoch {
		return err
	}
	m.acts--
	if call.unheard {
		m.look = m.look || m.acquired
		wake(m.work)
	}
	if answer, ok := call.answer.(interface{ revision() int64 }); ok && err == nil && answer.revision() > m.known {
		m.known = answer.revision()
	}
	return err
}

// reconcile lists the leases and repeats the claims when there is a reason to.
func (m *Membership) reconcile() {
	defer m.running.Done()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-m.work:
		}
		// One that fails does not hold up the others: the grace of the sessions is running.
		attached, listed, claimed := m.attachAgain(), m.list(), m.claimAgain()
		if attached == nil && listed == nil && claimed == nil {
			continue
		}
		if sleep(m.ctx, jitter(m.interval()/4, 0.25)) != nil {
			return
		}
		wake(m.work)
	}
}

// list compares the leases at the store with ours. What is missing there is lost; what is unknown here is released.
func (m *Membership) list() error {
	m.mutex.Lock()
	if !m.look || m.reason != "" {
		m.mutex.Unlock()
		return nil
	}
	m.mutex.Unlock()
	for try := 1; ; try++ {
		m.mutex.Lock()
		m.look = false
		epoch, doubts, known, tenure, began := m.epoch, m.doubts, m.known, m.tenure, now()
		mine := make(map[*Lease]bool, len(m.leases))
		for _, lease := range m.leases {
			mine[lease] = true
		}
		m.mutex.Unlock()
		found, revision, stable, err := m.listAll(tenure)
		if err != nil {
			m.mutex.Lock()
			m.look = true
			m.mutex.Unlock()
			return err
		}
		if !stable && try < listAttempts {
			continue
		}
		return m.settle(epoch, doubts, known, mine, found, revision, began)
	}
}

// listAll reads all pages, and whether nothing changed between them.
func (m *Membership) listAll(tenure string) (map[string]int64, int64, bool, error) {
	found, query := map[string]int64{}, url.Values{"tenure": {tenure}, "limit": {"1000"}}
	revision, stable := int64(-1), true
	for pages := 0; pages < maxPages; pages++ {
		var page struct {
			Leases   []listedLease
			Next     string `json:"next"`
			Revision int64  `json:"revision"`
		}
		request := m.call(http.MethodGet, reads, "leases")
		request.query, request.answer = query, &page
		if err := m.client.do(m.ctx, request); err != nil {
			return nil, 0, false, err
		}
		for _, lease := range page.Leases {
			if token := lease.tokenOf(tenure); token != 0 {
				found[lease.Lease] = token
			}
		}
		stable = stable && (revision < 0 || revision == page.Revision)
		if revision < 0 {
			revision = page.Revision
		}
		if page.Next == "" {
			return found, revision, stable, nil
		}
		query.Set("after", page.Next)
	}
	return nil, 0, false, endless()
}

type listedLease struct {
	Lease, Tenure string
	Token         int64
	Holders       []struct {
		Tenure  string
		Token   int64
		Revoked bool
	}
}

// tokenOf is the token that a tenure has of the lease; 0 if an operator released it.
func (l *listedLease) tokenOf(tenure string) int64 {
	if len(l.Holders) == 0 && l.Tenure == tenure {
		return l.Token
	}
	for _, holder := range l.Holders {
		if holder.Tenure == tenure && !holder.Revoked {
			return holder.Token
		}
	}
	return 0
}

func (m *Membership) settle(epoch, doubts int, known int64, mine map[*Lease]bool, found map[string]int64,
	revision int64, began instant) error {
	m.mutex.Lock()
	if m.epoch != epoch {
		m.mutex.Unlock()
		return nil
	}
	for name, lease := range m.leases {
		switch {
		case found[name] == lease.token:
		case mine[lease]:
			delete(m.leases, name)
			lease.lose("gone")
			m.reassert = true // If no operator released it, the store lost writes, and claims may be missing as well.
		case lease.revision <= revision:
			// Granted while the list was read. The next one decides.
			m.doubt()
			wake(m.work)
		}
	}
	strange := map[string]int64{}
	m.shown = map[string]int64{}
	for name, token := range found {
		switch {
		case m.leases[name] != nil:
		case m.busy[name] != nil:
			m.shown[name] = token
		case m.inherited && !m.isPerhaps(name):
			// Another process under this tenure has it.
		default:
			strange[name] = token
			m.busy[name] = make(chan struct{})
		}
	}
	if revision < known {
		m.known, m.reassert = revision, true
	} else if revision > m.known {
		m.known = revision
	}
	m.listed = revision
	if m.doubts == doubts {
		m.doubted = false
	}
	undecided := m.decide(found, began)
	m.mutex.Unlock()
	for name, token := range strange {
		if _, err := m.release(m.ctx, name, token, ""); err != nil {
			undecided = err
		}
		m.free(name)
	}
	return undecided
}

func (m *Membership) isPerhaps(lease string) bool {
	_, is := m.perhaps[lease]
	return is
}

// decide forgets the leases that a list begun after their last call did not show. Those that are left need another list.
func (m *Membership) decide(found map[string]int64, began instant) error {
	for name, asked := range m.perhaps {
		if _, is := found[name]; m.leases[name] != nil || !is && began.since(asked) > m.client.timeout {
			delete(m.perhaps, name)
		}
	}
	if len(m.perhaps) == 0 {
		return nil
	}
	m.look = true
	return errBusy
}

// free marks a lease as no longer being acquired or released.
func (m *Membership) free(lease string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if busy := m.busy[lease]; busy != nil {
		close(busy)
		delete(m.busy, lease)
	}
}
