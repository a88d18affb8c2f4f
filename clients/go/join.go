package tenure

import (
	"context"
	"net/http"
	"time"
)

// JoinOptions configure a membership. All fields may be empty.
type JoinOptions struct {
	// TTL is how long the store waits for a heartbeat. Default: the daemon's, 30 seconds.
	TTL time.Duration
	// Labels of the member, for example its address.
	Labels map[string]string
	// NoRejoin ends the membership when its tenure ends. By default it joins again after lapsed and unknown.
	NoRejoin bool
	// Patience is how long Join waits for a daemon that cannot be reached or has no store. By default it fails after three
	// attempts.
	Patience time.Duration
	// CheckClaims is how often the claims are repeated, to find those that another member took. Default: a minute.
	CheckClaims time.Duration
	// Notify is called for every change, in order, by a goroutine of its own. It may block; the verdicts do not wait for it.
	Notify func(Notice)
}

// Join begins a tenure. Without a name the member has one that no other process has. The context is for the call alone; Leave
// ends the membership.
func (c *Client) Join(ctx context.Context, group, member string, options JoinOptions) (*Membership, error) {
	if member == "" {
		member = generatedName()
	}
	if isWrappers(group, member) {
		return nil, invalid(member + " is the member of the wrapper around this process, and joining as it would end the wrapper; " +
			"Inherit acts under its tenure")
	}
	return c.begin(ctx, &Membership{client: c, group: group, member: member, options: options, ttl: options.TTL})
}

// begin begins the first tenure of a membership, and its goroutines.
func (c *Client) begin(ctx context.Context, m *Membership) (*Membership, error) {
	if m.options.CheckClaims <= 0 {
		m.options.CheckClaims = time.Minute
	}
	m.poke, m.work, m.notices = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	m.done = make(chan struct{})
	m.setLabels(m.options.Labels)
	m.claims = map[claimKey]bool{}
	m.busy = map[string]chan struct{}{}
	m.connections = map[connectionKey]int64{}
	joined, sent, err := m.joinPatiently(ctx)
	if err != nil {
		return nil, err
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.ttl = time.Duration(joined.TTL) * time.Millisecond
	m.begin(joined.Tenure, sent)
	m.expiry = time.AfterFunc(m.ttl, m.expire)
	m.running.Add(2)
	go m.beat()
	go m.reconcile()
	go m.tell()
	return m, nil
}

// joinPatiently joins, also if the daemon comes up later. Calls for one name take turns: a late one would end the membership of
// the one after it.
func (m *Membership) joinPatiently(ctx context.Context) (joinAnswer, instant, error) {
	began, name := now(), [2]string{m.group, m.member}
	for pause := firstTry; ; pause *= 2 {
		var joined joinAnswer
		var sent instant
		err := m.client.joins.grant(ctx, []any{name}, func(ctx context.Context) (err error) {
			if m.inherited {
				joined, sent, err = m.inherit(ctx, "")
			} else {
				joined, sent, err = m.join(ctx, 0, 0)
			}
			return err
		}, func(ctx context.Context) {
			if joined.Tenure != "" && !m.inherited {
				_ = m.client.do(ctx, m.call(http.MethodDelete, changes, "tenures", joined.Tenure))
			}
		})
		if err == nil {
			return joined, sent, nil
		}
		failed := err.(*Error)
		rest := m.options.Patience - now().since(began)
		if !failed.passes() || rest <= 0 || ctx.Err() != nil {
			return joinAnswer{}, sent, err
		}
		if pause > time.Second {
			pause = time.Second
		}
		if wait := shorter(longer(jitter(pause, 0.5), failed.RetryAfter), rest); sleep(ctx, wait) != nil {
			return joinAnswer{}, sent, gaveUp(ctx, failed.Outcome)
		}
	}
}

type joinAnswer struct {
	Tenure string `json:"tenure"`
	TTL    int64  `json:"ttl_ms"`
}

func (a *joinAnswer) complete() bool { return a.Tenure != "" && a.TTL > 0 && a.TTL < maxMillis }

// join makes the call. The tenure runs from the time at which its last attempt was sent, or earlier.
func (m *Membership) join(ctx context.Context, timeout time.Duration, tries int) (joinAnswer, instant, error) {
	body := map[string]any{"member": m.member}
	m.mutex.Lock()
	if m.ttl > 0 {
		body["ttl_ms"] = millis(m.ttl)
	}
	if len(m.labels) > 0 {
		body["labels"] = m.labels
	}
	m.mutex.Unlock()
	var answer joinAnswer
	request := m.call(http.MethodPost, changes, "members")
	request.body, request.answer, request.timeout, request.tries = body, &answer, timeout, tries
	err := m.client.do(ctx, request)
	return answer, request.sent, err
}
