package tenure

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestJoinShowsTheMemberAndLeaveRemovesIt(t *testing.T) {
	client, ctx := newClient(t), context.Background()
	m := join(t, client, "a", JoinOptions{Labels: map[string]string{"zone": "1"}})
	members, err := client.Members(ctx, t.Name())
	if err != nil || len(members) != 1 || members[0].Tenure != m.Tenure() || members[0].Labels["zone"] != "1" {
		t.Fatal(members, err)
	}
	if m.Verdict() != Held {
		t.Fatal(m.Verdict())
	}
	lease := acquire(t, m, "l")
	if err := m.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	closed(t, "done", m.Done())
	if m.Verdict() != Lost || lease.Verdict() != Lost || m.Err() != nil {
		t.Fatal(m.Verdict(), lease.Verdict(), m.Err())
	}
	if free, err := client.Lease(ctx, t.Name(), "l"); free != nil && free.Alive || err != nil {
		t.Fatal(free, err)
	}
}

func TestSupersededMembershipStops(t *testing.T) {
	client := newClient(t)
	notices := make(chan Notice, 10)
	older := join(t, client, "a", JoinOptions{TTL: time.Second, Notify: func(n Notice) { notices <- n }})
	lease := acquire(t, older, "l")
	join(t, client, "a", JoinOptions{})
	closed(t, "the older membership ends", older.Done())
	var failed *Error
	if !errors.As(older.Err(), &failed) || failed.Code != CodeTenureEnded || failed.Reason != "superseded" {
		t.Fatal(older.Err())
	}
	closed(t, "its lease is lost", lease.Lost())
	if first := <-notices; first.Kind != NoticeLeaseLost || first.Lease != lease {
		t.Fatal(first)
	}
	if second := <-notices; second.Kind != NoticeEnded || second.Reason != "superseded" {
		t.Fatal(second)
	}
	_, err := older.Claim(context.Background(), "r", "k")
	if Code(err) != CodeTenureEnded {
		t.Fatal(err)
	}
}

func TestLapsedMembershipRejoinsAndReclaims(t *testing.T) {
	client, ctx := newClient(t), context.Background()
	gate := &gate{next: http.DefaultTransport}
	gated, err := NewClient(Options{Transport: gate})
	if err != nil {
		t.Fatal(err)
	}
	m := join(t, gated, "a", JoinOptions{TTL: time.Second})
	first := m.Tenure()
	for _, key := range []string{"kept", "taken"} {
		if _, err := m.Claim(ctx, "r", key); err != nil {
			t.Fatal(err)
		}
	}
	gate.close()
	until(t, "the verdict is lost", func() bool { return m.Verdict() == Lost })
	other := join(t, client, "b", JoinOptions{})
	if _, err := other.Claim(ctx, "r", "taken"); err != nil {
		t.Fatal(err)
	}
	until(t, "it lapsed", func() bool {
		members, err := client.Members(ctx, t.Name())
		return err == nil && len(members) == 1
	})
	gate.open()
	until(t, "it joined again", func() bool { return m.Verdict() == Held && m.Tenure() != first })
	until(t, "the key is claimed again", func() bool {
		owner, err := client.Owner(ctx, t.Name(), "r", "kept")
		return err == nil && owner != nil && owner.Tenure == m.Tenure()
	})
	owner, err := client.Owner(ctx, t.Name(), "r", "taken")
	if err != nil || owner.Owner != "b" {
		t.Fatal(owner, err)
	}
}

func TestVerdictRunsFromWhenTheBeatWasSent(t *testing.T) {
	held := make(chan struct{})
	server := fakeDaemon(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(300 * time.Millisecond)
		w.WriteHeader(http.StatusCreated)
		w.Write([]byte(`{"tenure": "a@1", "ttl_ms": 600}`))
	}, func(http.ResponseWriter, *http.Request) { <-held })
	defer server.Close()
	defer close(held)
	client, err := NewClient(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	m, err := client.Join(context.Background(), "g", "a", JoinOptions{TTL: 600 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	m.mutex.Lock()
	age := now().since(m.confirmed)
	m.mutex.Unlock()
	if age < 300*time.Millisecond || age > time.Since(before) {
		t.Fatal("the tenure must count from when the join was sent, not answered: ", age)
	}
	until(t, "the verdict is lost", func() bool { return m.Verdict() == Lost })
	if passed := time.Since(before); passed < 600*time.Millisecond {
		t.Fatal("lost too early: ", passed)
	}
	m.stop()
}

// fakeDaemon answers joins and beats; it has a clock.
func fakeDaemon(join, beat http.HandlerFunc) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/now":
			w.Write([]byte(`{"now": "2026-01-01T00:00:00Z"}`))
		case r.Method == http.MethodPost:
			join(w, r)
		default:
			beat(w, r)
		}
	}))
}
