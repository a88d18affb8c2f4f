package tenure

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"time"
)

// wrapper is the process around this one that began a tenure: tenure join or tenure lock.
type wrapper struct{ group, tenure string }

func (w *wrapper) member() string { return w.tenure[:strings.LastIndexByte(w.tenure, '@')] }

// findWrapper reads TENURE_GROUP, TENURE_ID and the file TENURE_FILE, which names the tenure of now: the wrapper joins again after
// a lapse. It returns nil without a wrapper.
func findWrapper() (*wrapper, *Error) {
	found := &wrapper{os.Getenv("TENURE_GROUP"), os.Getenv("TENURE_ID")}
	if found.group == "" || !strings.Contains(found.tenure, "@") {
		return nil, nil
	}
	file := os.Getenv("TENURE_FILE")
	if file == "" {
		return found, nil
	}
	text, err := os.ReadFile(file)
	var content struct {
		Group  string `json:"group"`
		Tenure string `json:"tenure"`
	}
	if err == nil {
		err = json.Unmarshal(text, &content)
	}
	if err != nil || !strings.Contains(content.Tenure, "@") {
		return nil, &Error{Code: CodeUnreachable, Detail: "TENURE_FILE cannot be read", Outcome: Unchanged, Cause: err}
	}
	// In a wrapper within a wrapper it may be the file of the outer one.
	if current := (&wrapper{content.Group, content.Tenure}); current.group == found.group && current.member() == found.member() {
		return current, nil
	}
	return found, nil
}

// Inherit acts under the tenure of the tenure join or tenure lock around this process, without a join of its own. Of the options
// Patience, CheckClaims and Notify count.
//
// The tenure is the holder: processes that share it share its leases, so let each acquire others. Leave ends the heartbeats of
// this process; what it holds stays with the tenure until the wrapper leaves. When the wrapper joins again after a lapse, the
// membership follows it.
func (c *Client) Inherit(ctx context.Context, options JoinOptions) (*Membership, error) {
	found, failed := findWrapper()
	if failed != nil {
		return nil, failed
	}
	if found == nil {
		return nil, invalid("TENURE_ID and TENURE_GROUP are not set: start this program by tenure join or tenure lock")
	}
	return c.begin(ctx, &Membership{client: c, group: found.group, member: found.member(),
		options:   JoinOptions{Patience: options.Patience, CheckClaims: options.CheckClaims, Notify: options.Notify},
		inherited: true})
}

// isWrappers reports whether a join under this name would end the wrapper.
func isWrappers(group, member string) bool {
	found, _ := findWrapper()
	return found != nil && found.group == group && found.member() == member
}

// inherit takes over the tenure that the wrapper has now. The tenure runs from a heartbeat, for the ttl of the wrapper.
func (m *Membership) inherit(ctx context.Context, before string) (member joinAnswer, sent instant, err error) {
	found, failed := findWrapper()
	if failed != nil {
		return member, sent, failed
	}
	if found == nil || found.tenure == before {
		return member, sent, &Error{Code: CodeUnreachable, Detail: "the wrapper has not joined again", Outcome: Unchanged}
	}
	request := m.call(http.MethodGet, reads, "members", m.member)
	request.answer = &member
	if err := m.client.do(ctx, request); err != nil {
		return member, sent, err
	}
	if member.Tenure != found.tenure {
		return member, sent, ended(found.tenure, "unknown")
	}
	beat := m.call(http.MethodPut, reads, "tenures", found.tenure, "beat")
	beat.answer, beat.body, beat.pool, beat.timeout = &beatAnswer{}, map[string]any{}, beats, time.Second
	err = m.client.do(ctx, beat)
	return member, beat.sent, err
}
