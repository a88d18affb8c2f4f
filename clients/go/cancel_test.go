package tenure

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// late is a network in which the answer of one call arrives only after its caller gave up.
type late struct {
	mutex  sync.Mutex
	method string
	path   string        // The end of the path of that call.
	acted  chan struct{} // Closed when the daemon has acted.
	freed  chan struct{} // Closed when the answer may arrive.
}

func (l *late) set(method, path string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.method, l.path = method, path
}

// takes reports whether a request is that call.
func (l *late) takes(request *http.Request) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	is := request.Method == l.method && strings.HasSuffix(request.URL.Path, l.path)
	if is {
		l.method = ""
	}
	return is
}

func (l *late) RoundTrip(request *http.Request) (*http.Response, error) {
	if !l.takes(request) {
		return http.DefaultTransport.RoundTrip(request)
	}
	answer, err := http.DefaultTransport.RoundTrip(request.Clone(context.Background()))
	close(l.acted)
	select {
	case <-request.Context().Done():
		return nil, request.Context().Err()
	case <-l.freed:
		return answer, err
	}
}

// abandon makes a call, and cancels its context when the daemon has acted.
func abandon(t *testing.T, method, path string,
	call func(ctx context.Context, c *Client, m *Membership) error) (*Client, *Membership) {
	t.Helper()
	network := &late{acted: make(chan struct{}), freed: make(chan struct{})}
	client, err := NewClient(Options{Transport: network, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	m := join(t, client, "a", JoinOptions{TTL: time.Minute})
	ctx, cancel := context.WithCancel(context.Background())
	network.set(method, path)
	go func() {
		<-network.acted
		cancel()
	}()
	err = call(ctx, client, m)
	close(network.freed)
	if !errors.Is(err, context.Canceled) || err.(*Error).Outcome != Unknown {
		t.Fatal("a call that was given up must say so: ", err)
	}
	return client, m
}

func TestAbandonedAttachIsDetached(t *testing.T) {
	client, _ := abandon(t, http.MethodPut, "/sessions/s", func(ctx context.Context, _ *Client, m *Membership) error {
		_, err := m.Attach(ctx, "s", "c", AttachOptions{})
		return err
	})
	until(t, "the connection is detached", func() bool {
		found, err := client.Session(context.Background(), t.Name(), "s")
		return err == nil && found != nil && found.Connections == 0
	})
}

func TestAbandonedAttachKeepsAnOlderOne(t *testing.T) {
	client, m := abandon(t, http.MethodPut, "/sessions/s", func(ctx context.Context, _ *Client, m *Membership) error {
		network := m.client.pools[calls].Transport.(*late)
		network.set("", "") // Not this one.
		if _, err := m.Attach(ctx, "s", "c", AttachOptions{}); err != nil {
			return err
		}
		network.set(http.MethodPut, "/sessions/s")
		_, err := m.Attach(ctx, "s", "c", AttachOptions{Data: map[string]any{"a": "b"}})
		return err
	})
	// The next call of this connection has its turn after the one that was given up.
	if _, err := m.Attach(context.Background(), "s", "c", AttachOptions{}); err != nil {
		t.Fatal(err)
	}
	found, err := client.Session(context.Background(), t.Name(), "s")
	if err != nil || found.Connections != 1 || found.Data["a"] != "b" {
		t.Fatal(found, err)
	}
}

func TestAbandonedClaimIsReleased(t *testing.T) {
	client, _ := abandon(t, http.MethodPut, "/claims/k", func(ctx context.Context, _ *Client, m *Membership) error {
		_, err := m.Claim(ctx, "r", "k")
		return err
	})
	isFree(t, client, "k")
}

func TestAbandonedClaimsAreReleased(t *testing.T) {
	client, m := abandon(t, http.MethodPost, "/r/claims", func(ctx context.Context, _ *Client, m *Membership) error {
		if _, err := m.Claim(context.Background(), "r", "kept"); err != nil {
			return err
		}
		_, err := m.ClaimMany(ctx, "r", []string{"k", "kept", "l"})
		return err
	})
	isFree(t, client, "k")
	isFree(t, client, "l")
	if outcome, err := m.Claim(context.Background(), "r", "kept"); err != nil || outcome != "kept" {
		t.Fatal(outcome, err)
	}
}

func isFree(t *testing.T, client *Client, key string) {
	t.Helper()
	until(t, key+" is free", func() bool {
		owner, err := client.Owner(context.Background(), t.Name(), "r", key)
		return err == nil && owner == nil
	})
}

func TestAbandonedAcquireIsReleased(t *testing.T) {
	client, _ := abandon(t, http.MethodPost, "/acquire", func(ctx context.Context, _ *Client, m *Membership) error {
		_, err := m.Acquire(ctx, "l", AcquireOptions{})
		return err
	})
	until(t, "the lease is free", func() bool {
		state, err := client.Lease(context.Background(), t.Name(), "l")
		return err == nil && state == nil
	})
}

func TestAbandonedJoinLeaves(t *testing.T) {
	client, _ := abandon(t, http.MethodPost, "/members", func(ctx context.Context, c *Client, _ *Membership) error {
		_, err := c.Join(ctx, t.Name(), "b", JoinOptions{TTL: 100 * time.Second})
		return err
	})
	until(t, "the member is gone", func() bool {
		members, err := client.Members(context.Background(), t.Name())
		return err == nil && len(members) == 1
	})
}

// TestWhatIsGivenBackIsGivenBackAnyway: a deferred release often has a context that is done.
func TestWhatIsGivenBackIsGivenBackAnyway(t *testing.T) {
	client, ctx := newClient(t), context.Background()
	over, cancel := context.WithCancel(ctx)
	cancel()
	m := join(t, client, "a", JoinOptions{TTL: time.Minute})
	if _, err := m.Attach(ctx, "s", "c", AttachOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Claim(ctx, "r", "k"); err != nil {
		t.Fatal(err)
	}
	lease := acquire(t, m, "l")
	for what, err := range map[string]error{"detach": m.Detach(over, "s", "c"), "claim": m.ReleaseClaim(over, "r", "k"),
		"lease": lease.Release(over)} {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(what, err)
		}
	}
	isFree(t, client, "k")
	until(t, "the connection is detached", func() bool {
		found, err := client.Session(ctx, t.Name(), "s")
		return err == nil && found.Connections == 0
	})
	until(t, "the lease is free", func() bool {
		state, err := client.Lease(ctx, t.Name(), "l")
		return err == nil && state == nil
	})
	_ = m.Leave(over)
	until(t, "the member is gone", func() bool {
		members, err := client.Members(ctx, t.Name())
		return err == nil && len(members) == 0
	})
}
