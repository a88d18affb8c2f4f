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
	act, err := m.act(false)
	if err != nil {
		return nil, err
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
	answer := &Attached{}
	request := m.call(http.MethodPut, changes, "sessions", session)
	request.body, request.answer = body, answer
	if err := act.do(ctx, request); err != nil {
		return nil, err
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.connections[connectionKey{session, connection}] = answer.Epoch
	return answer, nil
}

// attachAgain attaches the connections under a new tenure. A session that was reaped is not created again.
func (m *Membership) attachAgain() error {
	m.mutex.Lock()
	keys := make([]connectionKey, 0, len(m.connections))
	for key := range m.connections {
		if m.reattach && m.reason == "" {
			keys = append(keys, key)
		}
	}
	m.reattach = m.reattach && m.reason != ""
	m.mutex.Unlock()
	var failed error
	for _, key := range keys {
		_, err := m.Attach(m.ctx, key.session, key.connection, AttachOptions{ResumeOnly: true})
		m.mutex.Lock()
		if Code(err) == CodeSessionNotFound {
			delete(m.connections, key)
		} else if err != nil {
			failed, m.reattach = err, true
		}
		m.mutex.Unlock()
	}
	return failed
}

// Detach detaches a connection, unless it was attached again elsewhere since.
func (m *Membership) Detach(ctx context.Context, session, connection string) error {
	act, err := m.act(true)
	if err != nil {
		return err
	}
	key := connectionKey{session, connection}
	m.mutex.Lock()
	epoch := m.connections[key]
	delete(m.connections, key)
	m.mutex.Unlock()
	request := m.call(http.MethodDelete, changes, "sessions", session, "connections", connection)
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

// Session looks up a session; nil if it does not exist.
func (c *Client) Session(ctx context.Context, group, session string) (*Session, error) {
	return get[Session](ctx, c, groupCall(http.MethodGet, reads, group, "sessions", session))
}
