package tenure

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Session is a session of a client of yours: it outlives its connections by a grace.
type Session struct {
	Session     string         `json:"session"`
	State       string         `json:"state"` // active, disconnected or orphan.
	Alias       string         `json:"alias"`
	Connections int            `json:"connections"`
	Data        map[string]any `json:"data"`
	Epoch       int64          `json:"epoch"` // The number of its last attach; it always rises.
}

// Attached is a session after an attach.
type Attached struct {
	Session
	revised
	Outcome string `json:"outcome"` // created, attached or resumed.
}

// AttachOptions configure an attach. All fields may be empty.
type AttachOptions struct {
	// Data to change: a value replaces the old one, nil removes it.
	Data map[string]any
	// Grace of the session, from a second. Default: unchanged, or the daemon's.
	Grace time.Duration
	// Alias of the session, unique in the group. Default: unchanged.
	Alias string
	// ResumeOnly does not create a session.
	ResumeOnly bool
}

type connectionKey struct{ session, connection string }

// Attach creates or resumes a session by a connection that this process serves. The connection is attached again when
// the membership joins again.
func (m *Membership) Attach(ctx context.Context, session, connection string, options AttachOptions) (*Attached, error) {
	key, answer := connectionKey{session, connection}, &Attached{}
	had := false
	err := m.turns.grant(ctx, []any{key}, func(ctx context.Context) error {
		_, had = m.attachedAt(key)
		act, err := m.act(false)
		if err != nil {
			return err
		}
		body := map[string]any{"tenure": act.tenure, "connection": connection, "resume_only": options.ResumeOnly}
		if len(options.Data) > 0 {
			body["data"] = options.Data
		}
		if options.Grace > 0 {
			body["grace_ms"] = millis(options.Grace)
		}
		if options.Alias != "" {
			body["alias"] = options.Alias
		}
		request := m.call(http.MethodPut, changes, "sessions", session)
		request.body, request.answer = body, answer
		if err := act.do(ctx, request); err != nil {
			return err
		}
		m.mutex.Lock()
		defer m.mutex.Unlock()
		m.connections[key] = answer.Epoch
		return nil
	}, func(ctx context.Context) {
		if !had {
			_ = m.detach(ctx, key)
		}
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (s *Session) complete() bool { return s.Session != "" }

func (a *Attached) complete() bool { return a.Outcome != "" && a.Epoch > 0 }

func (m *Membership) attachedAt(key connectionKey) (int64, bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	epoch, had := m.connections[key]
	return epoch, had
}

// attachAgain attaches the connections under a new tenure. A session that was reaped is not created again, but reported.
func (m *Membership) attachAgain() error {
	m.mutex.Lock()
	if !m.reattach || m.reason != "" {
		m.mutex.Unlock()
		return nil
	}
	m.reattach = false
	all := make([]connectionKey, 0, len(m.connections))
	for key := range m.connections {
		all = append(all, key)
	}
	m.mutex.Unlock()
	var failed error
	for from := 0; from < len(all); from += batch {
		to := from + batch
		if to > len(all) {
			to = len(all)
		}
		if err := m.attachPart(all[from:to]); err != nil {
			failed = err
		}
	}
	if failed != nil {
		m.mutex.Lock()
		m.reattach = true
		m.mutex.Unlock()
	}
	return failed
}

// attachPart attaches connections again, but those that a call changes at the moment: they are left for the next time.
func (m *Membership) attachPart(keys []connectionKey) error {
	var free []connectionKey
	var asked []map[string]any
	var left error
	for _, key := range keys {
		if !m.turns.try(key) {
			left = errBusy
			continue
		}
		defer m.turns.free(key)
		if _, had := m.attachedAt(key); had {
			free = append(free, key)
			asked = append(asked, map[string]any{"session": key.session, "connection": key.connection, "resume_only": true})
		}
	}
	if len(free) == 0 {
		return left
	}
	act, err := m.act(false)
	if err != nil {
		return err
	}
	answer := &attachesAnswer{asked: free}
	request := m.call(http.MethodPost, changes, "sessions-attach")
	request.body = map[string]any{"tenure": act.tenure, "sessions": asked}
	request.answer = answer
	if err := act.do(m.ctx, request); err != nil {
		return err
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for place, key := range free {
		result := answer.Results[place]
		if result.Now != nil {
			m.connections[key] = result.Now.Epoch
			continue
		}
		delete(m.connections, key)
		m.notice(Notice{Kind: NoticeSessionLost, Tenure: m.tenure, Session: key.session, Connection: key.connection,
			Reason: result.Outcome})
	}
	return left
}

type attachesAnswer struct {
	revised
	asked   []connectionKey
	Results []struct {
		Session    string   `json:"session"`
		Connection string   `json:"connection"`
		Outcome    string   `json:"outcome"` // attached or resumed, with Now; else why not.
		Now        *Session `json:"now"`
	} `json:"results"`
}

func (a *attachesAnswer) complete() bool {
	whole := len(a.Results) == len(a.asked)
	for place := 0; whole && place < len(a.asked); place++ {
		got := a.Results[place]
		whole = connectionKey{got.Session, got.Connection} == a.asked[place] && got.Outcome != "" && (got.Now == nil || got.Now.Epoch > 0)
	}
	return whole
}

// Detach detaches a connection, unless it was attached again elsewhere since.
func (m *Membership) Detach(ctx context.Context, session, connection string) error {
	key := connectionKey{session, connection}
	return m.turns.giveBack(ctx, key, func(ctx context.Context) error { return m.detach(ctx, key) })
}

func (m *Membership) detach(ctx context.Context, key connectionKey) error {
	act, err := m.act(true)
	if err != nil {
		return err
	}
	m.mutex.Lock()
	epoch := m.connections[key]
	delete(m.connections, key)
	m.mutex.Unlock()
	request := m.call(http.MethodDelete, changes, "sessions", key.session, "connections", key.connection)
	request.query = url.Values{"tenure": {act.tenure}}
	if epoch > 0 {
		request.query.Set("epoch", strconv.FormatInt(epoch, 10))
	}
	return act.do(ctx, request)
}

// PatchSession changes the data of a session if this member is alive.
func (m *Membership) PatchSession(ctx context.Context, session string, data map[string]any) (*Session, error) {
	act, err := m.act(false)
	if err != nil {
		return nil, err
	}
	request, answer := patchCall(m.group, session, act.tenure, data)
	if err := act.do(ctx, request); err != nil {
		return nil, err
	}
	return answer, nil
}

// PatchSession changes the data of a session: a value replaces the old one, nil removes it.
func (c *Client) PatchSession(ctx context.Context, group, session string, data map[string]any) (*Session, error) {
	request, answer := patchCall(group, session, "", data)
	if err := c.do(ctx, request); err != nil {
		return nil, err
	}
	return answer, nil
}

func patchCall(group, session, tenure string, data map[string]any) (*call, *Session) {
	answer := &Session{}
	request := groupCall(http.MethodPatch, changes, group, "sessions", session)
	body := map[string]any{"data": data}
	if tenure != "" {
		body["tenure"] = tenure
	}
	request.body, request.answer = body, answer
	return request, answer
}

// SessionsOf selects sessions. The zero value selects all.
type SessionsOf struct {
	State     string        // active, disconnected or orphan.
	OlderThan time.Duration // Without connections for at least this long.
}

// Sessions lists the sessions of a group.
func (c *Client) Sessions(ctx context.Context, group string, which SessionsOf) ([]Session, error) {
	request := groupCall(http.MethodGet, reads, group, "sessions")
	request.query = url.Values{}
	if which.State != "" {
		request.query.Set("state", which.State)
	}
	if which.OlderThan > 0 {
		age := (which.OlderThan + time.Millisecond - 1) / time.Millisecond
		request.query.Set("older_than_ms", strconv.FormatInt(int64(age), 10))
	}
	return list[Session](ctx, c, request, "sessions")
}

// Session looks up a session; nil if it does not exist.
func (c *Client) Session(ctx context.Context, group, session string) (*Session, error) {
	return get[Session](ctx, c, groupCall(http.MethodGet, reads, group, "sessions", session))
}
