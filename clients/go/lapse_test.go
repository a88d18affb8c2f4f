package tenure

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// distant is a network with a round trip of 20 ms.
type distant struct{ gate }

func (d *distant) RoundTrip(request *http.Request) (*http.Response, error) {
	time.Sleep(20 * time.Millisecond)
	return d.gate.RoundTrip(request)
}

// lapse lets the membership's tenure end, and lasts until another process sees it.
func lapse(t *testing.T, gate *gate) {
	t.Helper()
	gate.close()
	until(t, "it lapsed", func() bool {
		members, err := newClient(t).Members(context.Background(), t.Name())
		return err == nil && len(members) == 0
	})
}

func TestSessionsComeBackWithinTheirGrace(t *testing.T) {
	const sessions = 300
	network := &distant{gate{next: http.DefaultTransport}}
	client, err := NewClient(Options{Transport: network})
	if err != nil {
		t.Fatal(err)
	}
	m := join(t, client, "a", JoinOptions{TTL: 3 * time.Second})
	var all sync.WaitGroup
	slots := make(chan struct{}, 20)
	for n := 0; n < sessions; n++ {
		all.Add(1)
		go func(n int) {
			defer all.Done()
			slots <- struct{}{}
			defer func() { <-slots }()
			if _, err := m.Attach(context.Background(), fmt.Sprint("s", n), "c", AttachOptions{Grace: 3 * time.Second}); err != nil {
				t.Error(err)
			}
		}(n)
	}
	all.Wait()
	lapse(t, &network.gate)
	count := struct{ Active, Disconnected, Orphans int }{}
	counted := func() bool {
		request := groupCall(http.MethodGet, reads, t.Name(), "sessions-stats")
		request.answer = &count
		return newClient(t).do(context.Background(), request) == nil
	}
	until(t, "all wait for their connection", func() bool { return counted() && count.Disconnected == sessions })
	network.open()
	until(t, "none does", func() bool { return counted() && count.Disconnected == 0 })
	t.Log("of ", sessions, " sessions are back: ", count.Active)
	if count.Active != sessions {
		t.Fatal("sessions were reaped: ", count)
	}
	if err := m.Detach(context.Background(), "s0", "c"); err != nil {
		t.Fatal("its epoch is the newest: ", err)
	}
}

func TestWhatIsLostByALapseIsReported(t *testing.T) {
	gate := &gate{next: http.DefaultTransport}
	client, err := NewClient(Options{Transport: gate})
	if err != nil {
		t.Fatal(err)
	}
	ctx, notices := context.Background(), make(chan Notice, 10)
	m := join(t, client, "a", JoinOptions{TTL: time.Second, Notify: func(notice Notice) {
		if notice.Kind == "claim_lost" || notice.Kind == "session_lost" {
			notices <- notice
		}
	}})
	if _, err := m.Claim(ctx, "r", "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Attach(ctx, "s", "c", AttachOptions{Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	lapse(t, gate)
	other := join(t, newClient(t), "b", JoinOptions{})
	if _, err := other.Claim(ctx, "r", "k"); err != nil {
		t.Fatal(err)
	}
	until(t, "the session is reaped", func() bool {
		session, err := newClient(t).Session(ctx, t.Name(), "s")
		return err == nil && session == nil
	})
	gate.open()
	lost := map[string]Notice{}
	for len(lost) < 2 {
		select {
		case notice := <-notices:
			lost[notice.Kind] = notice
		case <-time.After(20 * time.Second):
			t.Fatal("not reported; only: ", lost)
		}
	}
	if claim := lost["claim_lost"]; claim.Registry != "r" || claim.Key != "k" || claim.Owner != "b" {
		t.Fatal(claim)
	}
	if session := lost["session_lost"]; session.Session != "s" || session.Connection != "c" || session.Reason != "gone" {
		t.Fatal(session)
	}
}

func TestClaimThatAnotherMemberTookIsReported(t *testing.T) {
	client, ctx, notices := newClient(t), context.Background(), make(chan Notice, 10)
	m := join(t, client, "a", JoinOptions{TTL: time.Second, CheckClaims: time.Millisecond, Notify: func(n Notice) { notices <- n }})
	results, err := m.ClaimMany(ctx, "r", []string{"k", "l"})
	if err != nil || len(results) != 2 || results[0].Outcome != "new" || results[1].Key != "l" {
		t.Fatal(results, err)
	}
	other := join(t, client, "b", JoinOptions{})
	if _, err := other.Claim(ctx, "r", "k"); err != nil {
		t.Fatal(err)
	}
	select {
	case notice := <-notices:
		if notice.Kind != NoticeClaimLost || notice.Key != "k" || notice.Owner != "b" {
			t.Fatal(notice)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("not reported")
	}
	results, err = other.ClaimMany(ctx, "r", []string{"l", "n"})
	if err != nil || results[0].Outcome != "held" || results[0].Owner != "a" || results[1].Outcome != "new" {
		t.Fatal(results, err)
	}
}
