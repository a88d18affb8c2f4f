package tenure

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Member is a member of a group.
type Member struct {
	Member   string            `json:"member"`
	Tenure   string            `json:"tenure"`
	Alive    bool              `json:"alive"` // Whether that tenure is alive now, by the store's clock.
	Labels   map[string]string `json:"labels"`
	JoinedAt time.Time         `json:"joined_at"`
	LastBeat time.Time         `json:"last_beat_at"`
}

// LeaseState is a lease as the store has it.
type LeaseState struct {
	Lease  string `json:"lease"`
	Holder string `json:"holder"`
	Tenure string `json:"tenure"`
	Alive  bool   `json:"alive"`
	Token  int64  `json:"token"`
}

func (s *LeaseState) complete() bool { return s.Lease != "" }

func (m *Member) complete() bool { return m.Tenure != "" }

// Members lists the members of a group.
func (c *Client) Members(ctx context.Context, group string) ([]Member, error) {
	return list[Member](ctx, c, groupCall(http.MethodGet, reads, group, "members"), "members")
}

// Lease looks up a lease; nil if it is free.
func (c *Client) Lease(ctx context.Context, group, lease string) (*LeaseState, error) {
	return get[LeaseState](ctx, c, groupCall(http.MethodGet, reads, group, "leases", lease))
}

// get reads one thing; nil if it does not exist.
func get[T any](ctx context.Context, c *Client, call *call) (*T, error) {
	found := new(T)
	call.answer = found
	if err := c.do(ctx, call); err != nil {
		if failed := err.(*Error); failed.Code == CodeNotFound || failed.Code == CodeSessionNotFound {
			return nil, nil
		}
		return nil, err
	}
	return found, nil
}

// list reads all pages. The call may have a query already.
func list[T any](ctx context.Context, c *Client, call *call, field string) ([]T, error) {
	all := []T{}
	if call.query == nil {
		call.query = url.Values{}
	}
	call.query.Set("limit", "1000")
	for pages := 0; pages < maxPages; pages++ {
		page := map[string]json.RawMessage{}
		call.answer = &page
		if err := c.do(ctx, call); err != nil {
			return nil, err
		}
		var items []T
		if err := json.Unmarshal(page[field], &items); err != nil {
			return nil, &Error{Code: CodeUnreachable, Detail: "the answer has no list of " + field, Outcome: Unchanged, Cause: err}
		}
		all = append(all, items...)
		var next string
		if given, ok := page["next"]; !ok || json.Unmarshal(given, &next) != nil || next == "" {
			return all, nil
		}
		call.query.Set("after", next)
	}
	return nil, endless()
}
