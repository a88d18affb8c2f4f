package tenure

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// gate is a network that can fall silent, or lose answers.
type gate struct {
	next   http.RoundTripper
	mutex  sync.Mutex
	closed bool
	loses  string // The method and path of the next answer to lose.
}

func (g *gate) close() { g.set(true, "") }
func (g *gate) open()  { g.set(false, "") }

func (g *gate) set(closed bool, loses string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.closed, g.loses = closed, loses
}

func (g *gate) RoundTrip(request *http.Request) (*http.Response, error) {
	g.mutex.Lock()
	silent, lost := g.closed, g.loses == request.Method+" "+request.URL.Path
	if lost {
		g.loses = ""
	}
	g.mutex.Unlock()
	if silent {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	answer, err := g.next.RoundTrip(request)
	if err == nil && lost {
		answer.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}
	return answer, err
}

func TestProblemBecomesATypedError(t *testing.T) {
	client, ctx := newClient(t), context.Background()
	_, err := client.Join(ctx, t.Name(), "no name", JoinOptions{})
	var failed *Error
	if !errors.As(err, &failed) || failed.Code != CodeInvalid || failed.Status != 422 || failed.Outcome != Unchanged {
		t.Fatal(err)
	}
	a, b := join(t, client, "a", JoinOptions{}), join(t, client, "b", JoinOptions{})
	acquire(t, a, "l")
	_, err = b.Acquire(ctx, "l", AcquireOptions{})
	if !errors.As(err, &failed) || failed.Code != CodeLeaseHeld || failed.Holder != "a" || failed.Tenure != a.Tenure() {
		t.Fatal(err)
	}
}

func TestRefusedConnectionChangedNothing(t *testing.T) {
	client, err := NewClient(Options{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Join(context.Background(), "g", "a", JoinOptions{})
	var failed *Error
	if !errors.As(err, &failed) || failed.Code != CodeUnreachable || failed.Outcome != Unchanged || failed.Status != 0 {
		t.Fatal(err)
	}
}

func TestCancelledContextIsTheCause(t *testing.T) {
	gate := &gate{next: http.DefaultTransport, closed: true}
	client, err := NewClient(Options{Transport: gate})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := client.Members(ctx, "g"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestChangesCarryANotAfterAndBeatsDoNot(t *testing.T) {
	limits := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/now" {
			w.Write([]byte(`{"now": "2026-01-01T00:00:00Z"}`))
			return
		}
		limits <- r.Header.Get("Tenure-Not-After")
	}))
	defer server.Close()
	client, err := NewClient(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, effect := range []effect{changes, reads} {
		if err := client.do(context.Background(), groupCall(http.MethodPut, effect, "g", "x")); err != nil {
			t.Fatal(err)
		}
	}
	limit, err := time.Parse(time.RFC3339, <-limits)
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if err != nil || limit.Before(began) || limit.After(began.Add(time.Second)) {
		t.Fatal("the limit must be at most one time-out after the store's time: ", limit, err)
	}
	if given := <-limits; given != "" {
		t.Fatal("a read has no limit: ", given)
	}
}

func TestStoreClockIsALowerBound(t *testing.T) {
	var clock storeClock
	began, shown := now(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	later := func(d time.Duration) instant { return at(began, d) }
	clock.learn(shown, began, later(time.Second)) // It may have been shown at the start of that second.
	if bound := clock.atLeast(later(2 * time.Second)); bound.After(shown.Add(time.Second)) {
		t.Fatal(bound)
	}
	clock.learn(shown.Add(2*time.Second), later(2*time.Second), later(2*time.Second))
	if bound := clock.atLeast(later(2 * time.Second)); !bound.Equal(shown.Add(2 * time.Second)) {
		t.Fatal("a higher bound replaces a lower one: ", bound)
	}
	clock.learn(shown.Add(-time.Hour), later(3*time.Second), later(3*time.Second))
	if bound := clock.atLeast(later(3 * time.Second)); !bound.Equal(shown.Add(-time.Hour)) {
		t.Fatal("a clock that was set back replaces the estimate: ", bound)
	}
}

func TestAddressWithSecretsIsRejected(t *testing.T) {
	for _, address := range []string{"http://user:secret@host", "ftp://host", "http://host?tls_ca=x", "host:1"} {
		if _, err := NewClient(Options{URL: address}); Code(err) != CodeInvalid {
			t.Fatal(address, err)
		}
	}
}
