package tenure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

const (
	maxTries  = 3
	firstTry  = 50 * time.Millisecond // The pause after the first failed attempt; it doubles.
	maxAnswer = 16 << 20
	// maxMillis bounds the durations of an answer, so that none overflows.
	maxMillis = 1 << 40
)

// Options configure a Client. All fields may be empty.
type Options struct {
	// URL of the daemon, like https://HOST:PORT?tls_ca=FILE. Also tls_cert and tls_key, for a client certificate. Default:
	// the variable TENURE_STORE, or http://127.0.0.1:7717.
	URL string
	// Token for the daemon. Default: that in the file that TENURE_TOKEN_FILE names, or the variable TENURE_TOKEN.
	Token string
	// Timeout of one attempt; a call makes up to three. Default: one second.
	Timeout time.Duration
	// Transport instead of the URL's TLS files. An *http.Transport is copied, so that heartbeats and calls that wait have
	// connections of their own; any other is shared by all calls.
	Transport http.RoundTripper
}

// Client calls one daemon. It is safe for concurrent use.
type Client struct {
	base    string
	token   func() string
	timeout time.Duration
	pools   [3]*http.Client
	clock   storeClock
	joins   turns
	part    time.Duration // The longest wait of one call.
}

// pool is a set of connections. Beats have their own, so that they neither wait for a connection nor meet one that another
// call found dead. Waits hold theirs for long.
type pool int

const (
	calls pool = iota
	beats
	waits
)

// NewClient makes a client. It does not connect.
func NewClient(options Options) (*Client, error) {
	if _, err := readClock(); err != nil {
		return nil, err
	}
	place, err := readPlace(first(options.URL, os.Getenv("TENURE_STORE"), "http://127.0.0.1:7717"))
	if err != nil {
		return nil, err
	}
	if options.Transport != nil && len(place.files) > 0 {
		return nil, invalid("the URL of the daemon names TLS files, and Options has a Transport; use one of them")
	}
	client := &Client{base: place.base, timeout: options.Timeout, part: maxWait}
	if client.token, err = tokenOf(options.Token); err != nil {
		return nil, err
	}
	if client.timeout <= 0 {
		client.timeout = time.Second
	}
	for use := range client.pools {
		transport := options.Transport
		if given, ok := transport.(*http.Transport); ok {
			transport = given.Clone()
		}
		if transport == nil && len(place.files) == 0 {
			transport = newTransport(nil)
		} else if transport == nil {
			if transport, err = newRenewing(place.files); err != nil {
				return nil, err
			}
		}
		// A redirect would carry the token to another server.
		client.pools[use] = &http.Client{Transport: transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return client, nil
}

// effect is what a repeated or late call can do.
type effect int

const (
	reads   effect = iota // Nothing: a read or a beat.
	changes               // It must not take effect after its caller gave up: it carries a Tenure-Not-After.
	commits               // A change of a ledger, which works while the store is down: it carries one if the clock is known.
)

// call is one call of the API.
type call struct {
	method  string
	path    []string
	query   url.Values
	body    any
	answer  any
	effect  effect
	token   string
	pool    pool
	timeout time.Duration
	tries   int
	sent    instant // When the last attempt was sent.
	// unheard is set when an attempt may have taken effect without an answer.
	unheard bool
}

// do makes a call, and repeats it a few times while no answer arrives.
func (c *Client) do(ctx context.Context, call *call) error {
	tries, pause := call.tries, firstTry
	if tries == 0 {
		tries = maxTries
	}
	for try := 1; ; try++ {
		failed := c.attempt(ctx, call)
		if failed == nil {
			return nil
		}
		if failed.Outcome == Unknown {
			call.unheard = true
		}
		if failed.Code == CodeTooLate {
			c.clock.forget()
		}
		if call.unheard && failed.passes() {
			failed.Outcome = Unknown
		}
		if !failed.passes() || try >= tries || failed.RetryAfter > c.timeout || ctx.Err() != nil ||
			isGivenUp(ctx) && !call.unheard {
			return failed
		}
		wait := jitter(pause, 0.5)
		if failed.RetryAfter > wait {
			wait = failed.RetryAfter
		}
		if sleep(ctx, wait) != nil {
			return failed
		}
		pause *= 2
	}
}

func (c *Client) attempt(ctx context.Context, call *call) *Error {
	timeout := call.timeout
	if timeout == 0 {
		timeout = c.timeout
	}
	if call.effect == changes {
		if failed := c.learnClock(ctx); failed != nil {
			return failed
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	limit := ""
	if deadline, ok := ctx.Deadline(); ok && call.effect != reads {
		patience := time.Until(deadline)
		if patience > c.timeout {
			patience = c.timeout // It limits joining a queue, not the wait in it.
		}
		if limit, ok = c.clock.notAfter(patience); !ok && call.effect == changes {
			return noAnswer(context.DeadlineExceeded, Unchanged)
		}
	}
	return c.send(ctx, call, limit)
}

type nowAnswer struct {
	Now time.Time `json:"now"`
}

func (a *nowAnswer) complete() bool { return !a.Now.IsZero() }

// learnClock reads the store's clock if the estimate is old.
func (c *Client) learnClock(ctx context.Context) *Error {
	if _, ok := c.clock.notAfter(0); ok {
		return nil
	}
	var answer nowAnswer
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	read := &call{method: http.MethodGet, path: []string{"v1", "now"}, answer: &answer}
	if failed := c.send(ctx, read, ""); failed != nil {
		return failed
	}
	c.clock.learn(answer.Now, read.sent, now())
	return nil
}

func (c *Client) request(ctx context.Context, call *call) (*http.Request, *Error) {
	target := c.base
	for _, part := range call.path {
		// A URL takes these as "current" and "parent", also when they are escaped.
		if part == "" || part == "." || part == ".." {
			return nil, invalid("the name \"" + part + "\" cannot be part of a URL; use 1 to 200 of A-Z a-z 0-9 . _ : -")
		}
		target += "/" + url.PathEscape(part)
	}
	if len(call.query) > 0 {
		target += "?" + call.query.Encode()
	}
	var body io.Reader
	if call.body != nil {
		encoded, err := json.Marshal(call.body)
		if err != nil {
			return nil, invalid("the data cannot be written as JSON: " + err.Error())
		}
		body = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, call.method, target, body)
	if err != nil {
		return nil, invalid(err.Error())
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if token := first(call.token, c.token()); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return request, nil
}

// send makes one attempt. A connection that was idle may be dead, and the others with it: then it is made again, on a new one.
func (c *Client) send(ctx context.Context, call *call, notAfter string) *Error {
	for again := true; ; again = false {
		var reused atomic.Bool
		trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { reused.Store(got.Reused) }}
		request, failed := c.request(httptrace.WithClientTrace(ctx, trace), call)
		if failed != nil {
			return failed
		}
		if notAfter != "" {
			request.Header.Set("Tenure-Not-After", notAfter)
		}
		failed = c.exchange(request, call)
		if failed == nil || failed.Status != 0 || !reused.Load() || !again || ctx.Err() != nil {
			return failed
		}
		call.unheard = call.unheard || failed.Outcome == Unknown
	}
}

func (c *Client) exchange(request *http.Request, call *call) *Error {
	lost := Unknown
	if call.effect == reads {
		lost = Unchanged
	}
	asked := now()
	call.sent = asked
	pool := c.pools[call.pool]
	response, err := pool.Do(request)
	if err == nil {
		defer response.Body.Close()
		var body []byte
		if body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer)); err == nil {
			if shown, err := time.Parse(time.RFC3339Nano, response.Header.Get("Tenure-Store-Time")); err == nil {
				c.clock.learn(shown, asked, now())
			}
			return understand(response, body, call, lost)
		}
	}
	if !errors.Is(err, context.Canceled) {
		pool.CloseIdleConnections() // They may be as dead as this one.
	}
	var network *net.OpError
	if errors.As(err, &network) && network.Op == "dial" {
		lost = Unchanged
	}
	return noAnswer(err, lost)
}

// understand reads an answer. One without the fields of its call is not of a daemon, and none.
func understand(response *http.Response, body []byte, call *call, lost Outcome) *Error {
	if response.StatusCode >= 300 {
		return problem(response, body, lost)
	}
	if call.answer == nil {
		return nil
	}
	err := json.Unmarshal(body, call.answer)
	if answer, ok := call.answer.(interface{ complete() bool }); err == nil && ok && !answer.complete() {
		err = errors.New("fields are missing")
	}
	if err != nil {
		return &Error{Code: CodeUnreachable, Status: response.StatusCode, Outcome: lost, Cause: err,
			Detail: "the answer is not of a Tenure daemon; check the URL"}
	}
	return nil
}

// problem reads an error response. A proxy in between may send its own pages.
func problem(response *http.Response, body []byte, lost Outcome) *Error {
	failed := &Error{Status: response.StatusCode, Outcome: Unchanged}
	if failed.Status >= 500 {
		failed.Outcome = lost
	}
	var given struct {
		Code, Detail, Reason, Holder, Owner, Tenure string
		Outcome                                     Outcome
		RetryAfter                                  int64  `json:"retry_after_ms"`
		ReservedFor                                 string `json:"reserved_for"`
	}
	is := strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json")
	if !is || json.Unmarshal(body, &given) != nil || given.Code == "" {
		failed.Code, failed.Detail = "bad_request", "the answer is not of a Tenure daemon; check the URL: "+response.Status
		if failed.Status >= 500 {
			failed.Code = CodeUnreachable
		}
		return failed
	}
	failed.Code, failed.Detail, failed.Reason = given.Code, given.Detail, given.Reason
	if given.RetryAfter > 0 && given.RetryAfter < maxMillis {
		failed.RetryAfter = time.Duration(given.RetryAfter) * time.Millisecond
	}
	failed.Holder, failed.Tenure = first(given.Holder, given.Owner, given.ReservedFor), given.Tenure
	if given.Outcome == Unchanged || given.Outcome == Unknown {
		failed.Outcome = given.Outcome
	}
	return failed
}

func noAnswer(err error, outcome Outcome) *Error {
	return &Error{Code: CodeUnreachable, Detail: "no answer", Outcome: outcome, Cause: err}
}

// sleep waits, or returns the error of the context.
func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

func millis(d time.Duration) int64 { return d.Milliseconds() }
