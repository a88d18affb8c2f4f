package tenure

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func TestTokenRisesOverHolders(t *testing.T) {
	client, ctx := newClient(t), context.Background()
	a, b := join(t, client, "a", JoinOptions{}), join(t, client, "b", JoinOptions{})
	last := int64(0)
	for _, m := range []*Membership{a, b, a} {
		lease := acquire(t, m, "l")
		if lease.Token() <= last || !lease.Held() {
			t.Fatal(lease.Token(), last, lease.Verdict())
		}
		last = lease.Token()
		if err := lease.Release(ctx); err != nil || lease.Verdict() != Lost {
			t.Fatal(err, lease.Verdict())
		}
	}
}

func TestHandOffReservesTheLease(t *testing.T) {
	client, ctx := newClient(t), context.Background()
	a, b := join(t, client, "a", JoinOptions{}), join(t, client, "b", JoinOptions{})
	reserved, err := acquire(t, a, "l").HandOff(ctx, "b")
	if err != nil || !reserved {
		t.Fatal(reserved, err)
	}
	if _, err := a.Acquire(ctx, "l", AcquireOptions{}); Code(err) != CodeLeaseHeld {
		t.Fatal(err)
	}
	acquire(t, b, "l")
}

func TestLeaseTakenAwayIsNoticedByTheRevision(t *testing.T) {
	client, ctx := newClient(t), context.Background()
	m := join(t, client, "a", JoinOptions{TTL: time.Second})
	taken, kept := acquire(t, m, "taken"), acquire(t, m, "kept")
	work, cancel := taken.Context(ctx)
	defer cancel()
	other := m.call(http.MethodPost, changes, "leases", "taken", "release")
	other.body = map[string]any{"tenure": m.Tenure(), "token": taken.Token()}
	if err := client.do(ctx, other); err != nil {
		t.Fatal(err)
	}
	closed(t, "the work is cancelled", work.Done())
	if taken.Verdict() != Lost || taken.Reason() != "gone" {
		t.Fatal(taken.Verdict(), taken.Reason())
	}
	until(t, "the other lease is held", kept.Held)
}

func TestLostAnswersAreRepeated(t *testing.T) {
	gate := &gate{next: http.DefaultTransport}
	client, err := NewClient(Options{Transport: gate})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	m := join(t, client, "a", JoinOptions{})
	path := "/v1/groups/" + t.Name() + "/leases/l/"
	gate.set(false, "POST "+path+"acquire")
	lease := acquire(t, m, "l")
	state, err := client.Lease(ctx, t.Name(), "l")
	if err != nil || state.Token != lease.Token() || !lease.Held() {
		t.Fatal(state, err, lease.Verdict())
	}
	gate.set(false, "POST "+path+"release")
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if state, err := client.Lease(ctx, t.Name(), "l"); state != nil || err != nil {
		t.Fatal(state, err)
	}
}

func TestGrantNobodyWaitsForIsReleased(t *testing.T) {
	gate := &gate{next: &http.Transport{DisableKeepAlives: true}} // On an idle connection it would be sent again.
	client, err := NewClient(Options{Transport: gate})
	if err != nil {
		t.Fatal(err)
	}
	m := join(t, client, "a", JoinOptions{TTL: time.Second})
	act, err := m.act(false)
	if err != nil {
		t.Fatal(err)
	}
	// A grant without an answer, of an acquire that was given up.
	m.mutex.Lock()
	m.acquired = true
	m.mutex.Unlock()
	gate.set(false, "POST /v1/groups/"+t.Name()+"/leases/l/acquire")
	request := m.acquireCall(act, "l", 0, 0)
	request.tries, request.answer = 1, &acquireAnswer{}
	if err := act.do(context.Background(), request); err.(*Error).Outcome != Unknown {
		t.Fatal(err)
	}
	until(t, "the lease is released", func() bool {
		state, err := client.Lease(context.Background(), t.Name(), "l")
		return err == nil && state == nil
	})
	if m.Verdict() != Held {
		t.Fatal(m.Verdict())
	}
}

func TestClaimIfAbsentNamesTheOwner(t *testing.T) {
	client, ctx := newClient(t), context.Background()
	a, b := join(t, client, "a", JoinOptions{}), join(t, client, "b", JoinOptions{})
	if outcome, err := a.Claim(ctx, "r", "k"); err != nil || outcome != "new" {
		t.Fatal(outcome, err)
	}
	_, err := b.ClaimIfAbsent(ctx, "r", "k")
	if Code(err) != CodeClaimHeld || err.(*Error).Holder != "a" {
		t.Fatal(err)
	}
	if outcome, err := b.Claim(ctx, "r", "k"); err != nil || outcome != "moved" {
		t.Fatal(outcome, err)
	}
	if err := b.ReleaseClaim(ctx, "r", "k"); err != nil {
		t.Fatal(err)
	}
	if owner, err := client.Owner(ctx, t.Name(), "r", "k"); owner != nil || err != nil {
		t.Fatal(owner, err)
	}
}

func TestSessionDataIsMerged(t *testing.T) {
	client, ctx := newClient(t), context.Background()
	m := join(t, client, "a", JoinOptions{})
	attached, err := m.Attach(ctx, "s", "c", AttachOptions{Data: map[string]any{"room": "garden", "seen": "1"}})
	if err != nil || attached.Outcome != "created" || attached.Connections != 1 {
		t.Fatal(attached, err)
	}
	changed, err := m.PatchSession(ctx, "s", map[string]any{"seen": nil, "name": "x"})
	if err != nil || len(changed.Data) != 2 || changed.Data["name"] != "x" {
		t.Fatal(changed, err)
	}
	if err := m.Detach(ctx, "s", "c"); err != nil {
		t.Fatal(err)
	}
	found, err := client.Session(ctx, t.Name(), "s")
	if err != nil || found.State != "disconnected" {
		t.Fatal(found, err)
	}
}

func TestFollowerResumesWhereItWas(t *testing.T) {
	client, ctx := newClient(t), context.Background()
	join(t, client, "a", JoinOptions{})
	follower := client.Follow(t.Name(), "")
	first, err := follower.Next(ctx)
	if err != nil || first.Type != "joined" || first.Member != "a" {
		t.Fatal(first, err)
	}
	join(t, client, "b", JoinOptions{})
	second, err := client.Follow(t.Name(), follower.Position()).Next(ctx)
	if err != nil || second.Member != "b" || second.ID <= first.ID {
		t.Fatal(second, err)
	}
}

func TestReserveTakesTheLastPlaceOnce(t *testing.T) {
	client, ctx := newClient(t), context.Background()
	roster := client.Roster(t.Name())
	if _, err := roster.Put(ctx, "ann", ProviderOptions{Capacity: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := roster.Online(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	if err := roster.Heartbeat(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	if available, err := roster.Available(ctx); err != nil || len(available) != 1 {
		t.Fatal(available, err)
	}
	reserved, err := roster.Reserve(ctx, "")
	if err != nil || reserved.Provider != "ann" {
		t.Fatal(reserved, err)
	}
	if _, err := roster.Reserve(ctx, ""); Code(err) != "none_available" {
		t.Fatal(err)
	}
	if _, err := roster.ReleaseEngagement(ctx, reserved.Engagement); err != nil {
		t.Fatal(err)
	}
	ann, err := roster.Offline(ctx, "ann")
	if err != nil || ann.Online || ann.Occupancy != 0 {
		t.Fatal(ann, err)
	}
}

func TestListedTokenIsThatOfTheTenure(t *testing.T) {
	lease := listedLease{Lease: "l", Tenure: "b@2", Token: 2}
	if lease.tokenOf("a@1") != 0 || lease.tokenOf("b@2") != 2 {
		t.Fatal("without holders the lease has one tenure")
	}
	text := `{"lease": "l", "tenure": "b@2", "token": 2, "holders": [{"tenure": "a@1", "token": 1}, ` +
		`{"tenure": "b@2", "token": 2}, {"tenure": "c@3", "token": 3, "revoked": true}]}`
	if err := json.Unmarshal([]byte(text), &lease); err != nil {
		t.Fatal(err)
	}
	if lease.tokenOf("a@1") != 1 || lease.tokenOf("c@3") != 0 {
		t.Fatal("a shared lease has a token for each tenure, and a revoked one is none: ", lease)
	}
}

// during makes calls between an answer of the store and its arrival.
type during struct {
	next http.RoundTripper
	path string
	then func()
}

func (d *during) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := d.next.RoundTrip(request)
	if then := d.then; then != nil && strings.HasSuffix(request.URL.Path, d.path) {
		d.then = nil
		then()
	}
	return answer, err
}

// acquireDuring acquires a lease; then runs when the store has granted it, before its answer arrives.
func acquireDuring(t *testing.T, then func(m *Membership)) *Lease {
	t.Helper()
	transport := &during{next: http.DefaultTransport, path: "/acquire"}
	client, err := NewClient(Options{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	m := join(t, client, "a", JoinOptions{TTL: time.Minute})
	transport.then = func() { then(m) }
	return acquire(t, m, "l")
}

// listNow lists the leases as the reconciler does.
func listNow(t *testing.T, m *Membership) {
	t.Helper()
	m.mutex.Lock()
	m.look = true
	m.mutex.Unlock()
	if err := m.list(); err != nil {
		t.Fatal(err)
	}
}

func TestGrantThatAListShowsIsHeld(t *testing.T) {
	lease := acquireDuring(t, func(m *Membership) {
		acquire(t, m, "other")
		listNow(t, m)
	})
	if !lease.Held() {
		t.Fatal(lease.Verdict())
	}
}

func TestGrantThatAListDoesNotShowIsLost(t *testing.T) {
	lease := acquireDuring(t, func(m *Membership) {
		request, err := http.NewRequest(http.MethodDelete, os.Getenv("TENURE_STORE")+"/v1/groups/"+t.Name()+"/leases/l", nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := http.DefaultClient.Do(request); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatal(answer, err)
		}
		listNow(t, m)
	})
	if lease.Held() {
		t.Fatal(lease.Verdict())
	}
	closed(t, "the lease is lost", lease.Lost())
}

func TestListThatBeganBeforeTheGrantIsReadAgain(t *testing.T) {
	m := join(t, newClient(t), "a", JoinOptions{})
	lease := acquire(t, m, "l")
	m.mutex.Lock()
	epoch, doubts, known := m.epoch, m.doubts, m.known
	m.mutex.Unlock()
	// Begun before the grant, and read after an operator's release: it shows neither.
	if err := m.settle(epoch, doubts, known, nil, nil, known+1, now()); err != nil || lease.Held() || lease.Reason() != "" {
		t.Fatal(err, lease.Verdict(), lease.Reason())
	}
	until(t, "the next list shows it", lease.Held)
}

func TestRejoinDuringAnAcquireStillListsLeases(t *testing.T) {
	m := join(t, newClient(t), "a", JoinOptions{})
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.busy["l"] = make(chan struct{})
	if m.holdings.begin(); !m.acquired {
		t.Fatal("a beat would name revisions that no list has shown")
	}
}
