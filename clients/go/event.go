package tenure

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// pollWait is how long one call waits for events. A connection that is dead without a sign is noticed after it.
const pollWait = 5 * time.Second

// Event is an event of a group, or the announcement that events are missing (Type "gap").
type Event struct {
	ID     int64           `json:"id"`
	At     time.Time       `json:"at"`
	Type   string          `json:"type"`
	Member string          `json:"member"`
	Tenure string          `json:"tenure"`
	Lease  string          `json:"lease"`
	Token  int64           `json:"token"`
	Reason string          `json:"reason"`
	Raw    json.RawMessage `json:"-"` // All fields.
}

// TypeGap is the type of the item that stands for events that the daemon no longer has.
const TypeGap = "gap"

// EventPage is one page of events.
type EventPage struct {
	Events []Event
	Next   string // Continue after this one.
	Missed bool   // Whether events before these are missing.
}

// Events reads the events after a position; "" is the oldest kept. Types limits them, if given.
func (c *Client) Events(ctx context.Context, group, after string, limit int, types ...string) (*EventPage, error) {
	return c.events(ctx, group, after, limit, types, 0)
}

type eventsAnswer struct {
	Events []json.RawMessage `json:"events"`
	Next   string            `json:"next"`
	Missed bool              `json:"missed"`
}

// complete: without a position a follower would begin again.
func (a *eventsAnswer) complete() bool { return a.Events != nil && a.Next != "" }

func (c *Client) events(ctx context.Context, group, after string, limit int, types []string, wait time.Duration) (*EventPage, error) {
	var answer eventsAnswer
	request := groupCall(http.MethodGet, reads, group, "events")
	request.answer, request.query = &answer, url.Values{}
	if after != "" {
		request.query.Set("after", after)
	}
	if limit > 0 {
		request.query.Set("limit", strconv.Itoa(limit))
	}
	if len(types) > 0 {
		request.query.Set("types", strings.Join(types, ","))
	}
	if wait > 0 {
		request.query.Set("wait_ms", strconv.FormatInt(millis(wait), 10))
		request.timeout, request.tries, request.pool = wait+c.timeout, 1, waits
	}
	if err := c.do(ctx, request); err != nil {
		return nil, err
	}
	page := &EventPage{Events: make([]Event, len(answer.Events)), Next: answer.Next, Missed: answer.Missed}
	for place, raw := range answer.Events {
		if err := json.Unmarshal(raw, &page.Events[place]); err != nil {
			return nil, &Error{Code: CodeUnreachable, Detail: "an event cannot be read", Outcome: Unchanged, Cause: err}
		}
		page.Events[place].Raw = raw
	}
	return page, nil
}

// Follower reads the events of a group as they occur. Not for concurrent use.
type Follower struct {
	client  *Client
	group   string
	types   []string
	after   string
	pending []Event
	next    string
}

// Follow follows the events after a position; "" is the oldest kept. Types limits them, if given.
func (c *Client) Follow(group, after string, types ...string) *Follower {
	return &Follower{client: c, group: group, types: types, after: after, next: after}
}

// Position is that of the last event that Next returned. Keep it, to resume with Follow.
func (f *Follower) Position() string { return f.after }

// Next waits for the next event. It retries while the daemon cannot be reached, until the context is done. Missing
// events are announced by an Event of TypeGap.
func (f *Follower) Next(ctx context.Context) (Event, error) {
	for failures := 0; len(f.pending) == 0; {
		page, err := f.client.events(ctx, f.group, f.next, 1000, f.types, pollWait)
		if err != nil {
			failed := err.(*Error)
			if !failed.passes() || ctx.Err() != nil {
				return Event{}, err
			}
			pause := jitter(firstTry<<failures, 0.5)
			if failed.RetryAfter > pause {
				pause = failed.RetryAfter
			}
			if sleep(ctx, pause) != nil {
				return Event{}, err
			}
			if failures < 6 {
				failures++
			}
			continue
		}
		failures = 0
		if page.Missed {
			f.pending = append(f.pending, Event{Type: TypeGap})
		}
		f.pending = append(f.pending, page.Events...)
		f.next = page.Next
	}
	event := f.pending[0]
	f.pending = f.pending[1:]
	if event.ID > 0 {
		f.after = strconv.FormatInt(event.ID, 10)
	}
	if len(f.pending) == 0 {
		f.after = f.next
	}
	return event, nil
}
