package tenure

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

type strange struct {
	status int
	body   string
}

// impostor is a network in which something else than the daemon answers the calls of a path. The daemon does not see them.
type impostor struct {
	mutex sync.Mutex
	path  string // The end of the path.
	gives []strange
	given int
}

func (i *impostor) set(path string, gives ...strange) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.path, i.gives, i.given = path, gives, 0
}

func (i *impostor) count() int {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return i.given
}

func (i *impostor) RoundTrip(request *http.Request) (*http.Response, error) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if i.path == "" || !strings.HasSuffix(request.URL.Path, i.path) {
		return http.DefaultTransport.RoundTrip(request)
	}
	give := i.gives[i.given%len(i.gives)]
	i.given++
	kind := "application/json"
	if give.status >= 400 {
		kind = "application/problem+json"
	}
	var body io.Reader = bytes.NewReader([]byte(give.body))
	if strings.HasSuffix(give.body, "…") {
		body = io.MultiReader(body, broken{})
	}
	return &http.Response{StatusCode: give.status, Status: http.StatusText(give.status), Request: request,
		Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(body)}, nil
}

// broken is the end of a body that was cut.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

var garbled = []strange{{200, ""}, {200, "null"}, {200, "[]"}, {200, "7"}, {200, "{}"}, {200, `{"tenure": "a@1", "tok…`},
	{200, "<html>welcome</html>"}, {200, `{"outcome": 1, "token": "7", "tenure": [], "ttl_ms": {}, "results": 5, "epoch": "x"}`},
	{200, `{"outcome": "granted", "token": -1, "tenure": "a@1", "ttl_ms": -5, "results": [null], "epoch": -1, "session": "s"}`},
	{200, `{"outcome": "granted", "token": 1e300, "tenure": "a@1", "ttl_ms": 1e300, "results": [{}], "epoch": 1e300}`},
	{200, `{"tenure": "a@1", "ttl_ms": 9223372036854775807, "events": [{"id": "x"}], "next": "1"}`},
	{200, `{"tenure": "a@1", "ttl_ms": 0, "events": null, "members": 5, "leases": [{"lease": 5}]}`}}

func imposed(t *testing.T) (*impostor, *Client) {
	t.Helper()
	network := &impostor{}
	client, err := NewClient(Options{Transport: network})
	if err != nil {
		t.Fatal(err)
	}
	return network, client
}

func TestStrangeAnswersAreErrorsOfThisPackage(t *testing.T) {
	network, client := imposed(t)
	ctx := context.Background()
	m := join(t, client, "a", JoinOptions{TTL: 100 * time.Second})
	calls := map[string]func() error{
		"/members": func() error { _, err := client.Join(ctx, t.Name(), "b", JoinOptions{}); return err },
		"/acquire": func() error { _, err := m.Acquire(ctx, "l", AcquireOptions{}); return err },
		"/k":       func() error { _, err := m.Claim(ctx, "r", "k"); return err },
		"/claims":  func() error { _, err := m.ClaimMany(ctx, "r", []string{"k"}); return err },
		"/s":       func() error { _, err := m.Attach(ctx, "s", "c", AttachOptions{}); return err },
	}
	for path, call := range calls {
		for _, give := range garbled {
			network.set(path, give)
			err := call()
			if err == nil && path == "/k" && strings.Contains(give.body, `"granted"`) {
				continue // An outcome, if one of a later daemon.
			}
			var failed *Error
			if !errors.As(err, &failed) || failed.Code != CodeUnreachable || failed.Outcome != Unknown {
				t.Fatal(path, " ", give, ": ", err)
			}
		}
	}
	reads := map[string]func() error{
		"/events":  func() error { _, err := client.Events(ctx, t.Name(), "", 0); return err },
		"/members": func() error { _, err := client.Members(ctx, t.Name()); return err },
		"/x":       func() error { _, err := client.Owner(ctx, t.Name(), "r", "x"); return err },
	}
	for path, read := range reads {
		for _, give := range garbled {
			network.set(path, give)
			if err := read(); path != "/x" && Code(err) != CodeUnreachable || err != nil && Code(err) != CodeUnreachable {
				t.Fatal(path, " ", give, ": ", err)
			}
		}
	}
	network.set("", strange{})
	if m.Verdict() != Held {
		t.Fatal(m.Verdict())
	}
}

func TestStrangeAnswersDoNotEndTheBeats(t *testing.T) {
	network, client := imposed(t)
	ended := make(chan Notice, 10)
	m := join(t, client, "a", JoinOptions{TTL: time.Second, Notify: func(n Notice) { ended <- n }})
	first := m.Tenure()
	gives := append(append([]strange{}, garbled...), strange{410, `{"code": "tenure_ended", "reason": 5}`},
		strange{410, `{"code": "tenure_ended", "reason": {"a": []}}`}, strange{410, `{"code": 7, "reason": "lapsed"}`},
		strange{410, `[]`}, strange{429, `{"code": "rate_limited", "retry_after_ms": 9223372036854775807}`},
		strange{503, `{"code": "store_unavailable", "retry_after_ms": -9e99}`},
		strange{200, `{"expires_in_ms": 1e400}`}, strange{200, `{"expires_in_ms": 5, "revision": -7}`},
		strange{200, `{"expires_in_ms": "5"}`}, strange{200, `{"expires_in_ms": 5, "revision": {}}`})
	network.set("/beat", gives...)
	until(t, "each was given twice", func() bool { return network.count() >= 2*len(gives) })
	network.set("", strange{})
	until(t, "it is held again, or joined again", func() bool { return m.Verdict() == Held })
	for len(ended) > 0 {
		if notice := <-ended; notice.Kind == NoticeEnded && notice.Reason != "lapsed" {
			t.Fatal(notice)
		}
	}
	if m.Err() != nil || m.Tenure() == "" || first == "" {
		t.Fatal(m.Err())
	}
}

func TestPagesWithoutAnEndAreAnError(t *testing.T) {
	network, client := imposed(t)
	network.set("/members", strange{200, `{"members": [], "next": "again"}`})
	_, err := client.Members(context.Background(), t.Name())
	if Code(err) != CodeUnreachable {
		t.Fatal(err)
	}
}

func TestFollowerReadsOnAfterStrangeAnswers(t *testing.T) {
	network, client := imposed(t)
	join(t, client, "a", JoinOptions{})
	network.set("/events", strange{200, "{}"}, strange{200, "<html>"}, strange{200, `{"events": [{"id": []}], "next": "5"}`})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	go func() {
		for network.count() < 3 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		network.set("", strange{})
	}()
	event, err := client.Follow(t.Name(), "").Next(ctx)
	if err != nil || event.Member != "a" {
		t.Fatal(event, err)
	}
}
