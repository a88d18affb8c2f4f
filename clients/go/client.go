package tenure

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	maxTries  = 3
	firstTry  = 50 * time.Millisecond // The pause after the first failed attempt; it doubles.
	maxAnswer = 16 << 20
)

// Options configure a Client. All fields may be empty.
type Options struct {
	// URL of the daemon. Default: the variable TENURE_STORE, or http://127.0.0.1:7717.
	URL string
	// Token for the daemon. Default: the variable TENURE_TOKEN.
	Token string
	// Timeout of one attempt; a call makes up to three. Default: one second.
	Timeout time.Duration
	// Transport, for example with a TLS configuration. Default: one with connections of its own.
	Transport http.RoundTripper
}

// Client calls one daemon. It is safe for concurrent use.
type Client struct {
	base    string
	token   string
	timeout time.Duration
	http    *http.Client
	clock   storeClock
}

// NewClient makes a client. It does not connect.
func NewClient(options Options) (*Client, error) {
	if _, err := readClock(); err != nil {
		return nil, err
	}
	base := first(options.URL, os.Getenv("TENURE_STORE"), "http://127.0.0.1:7717")
	parsed, err := url.Parse(base)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
		return nil, invalid("the URL of the daemon is not like http://127.0.0.1:7717 or https://HOST:PORT")
	}
	if parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return nil, invalid("the URL of the daemon has credentials, a query or a fragment; use Options.Token and Options.Transport")
	}
	client := &Client{
		base:    strings.TrimSuffix(parsed.String(), "/"),
		token:   first(options.Token, os.Getenv("TENURE_TOKEN")),
		timeout: options.Timeout,
		http:    &http.Client{Transport: options.Transport},
	}
	if client.timeout <= 0 {
		client.timeout = time.Second
	}
	if options.Transport == nil {
		client.http.Transport = newTransport()
	}
	// A redirect would carry the token to another server.
	client.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, nil
}

// newTransport speaks HTTP/1.1 only: with HTTP/2 all calls, and the beats with them, would share one broken connection.
func newTransport() *http.Transport {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     30 * time.Second,
	}
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	return transport
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
		if !failed.passes() || try >= tries || failed.RetryAfter > c.timeout || ctx.Err() != nil {
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
	request, failed := c.request(ctx, call)
	if failed != nil {
		return failed
	}
	if deadline, ok := ctx.Deadline(); ok && call.effect != reads {
		patience := time.Until(deadline)
		if patience > c.timeout {
			patience = c.timeout // It limits joining a queue, not the wait in it.
		}
		if limit, ok := c.clock.notAfter(patience); ok {
			request.Header.Set("Tenure-Not-After", limit)
		} else if call.effect == changes {
			return noAnswer(context.DeadlineExceeded, Unchanged)
		}
	}
	return c.send(request, call)
}

// learnClock reads the store's clock if the estimate is old.
func (c *Client) learnClock(ctx context.Context) *Error {
	if _, ok := c.clock.notAfter(0); ok {
		return nil
	}
	var answer struct {
		Now time.Time `json:"now"`
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	read := &call{method: http.MethodGet, path: []string{"v1", "now"}, answer: &answer}
	request, failed := c.request(ctx, read)
	if failed != nil {
		return failed
	}
	asked := now()
	if failed := c.send(request, read); failed != nil {
		return failed
	}
	c.clock.learn(answer.Now, asked, now())
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
	if token := first(call.token, c.token); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return request, nil
}

func (c *Client) send(request *http.Request, call *call) *Error {
	lost := Unknown
	if call.effect == reads {
		lost = Unchanged
	}
	asked := now()
	call.sent = asked
	response, err := c.http.Do(request)
	if err != nil {
		// The other idle connections may be as dead as this one.
		c.http.CloseIdleConnections()
		var network *net.OpError
		if errors.As(err, &network) && network.Op == "dial" {
			lost = Unchanged
		}
		return noAnswer(err, lost)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		c.http.CloseIdleConnections()
		return noAnswer(err, lost)
	}
	if shown, err := time.Parse(time.RFC3339Nano, response.Header.Get("Tenure-Store-Time")); err == nil {
		c.clock.learn(shown, asked, now())
	}
	if response.StatusCode >= 300 {
		return problem(response, body, lost)
	}
	if call.answer == nil || len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, call.answer); err != nil {
		return &Error{Code: "internal", Status: response.StatusCode, Outcome: lost, Cause: err,
			Detail: "this version does not understand the daemon's answer"}
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
	failed.RetryAfter = time.Duration(given.RetryAfter) * time.Millisecond
	failed.Holder, failed.Tenure = first(given.Holder, given.Owner, given.ReservedFor), given.Tenure
	if given.Outcome != "" {
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
