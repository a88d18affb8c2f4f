package tenure

import (
	"context"
	"net/http"
)

// Roster is a list of providers that can be reserved. Make it with Client.Roster.
type Roster struct {
	client *Client
	name   string
	// Token of the provider, if the daemon asks providers for tokens of their own.
	Token string
}

// Provider is a provider of a roster.
type Provider struct {
	Provider    string `json:"provider"`
	DisplayName string `json:"display_name"`
	Active      bool   `json:"active"`    // Not deactivated by an operator.
	Online      bool   `json:"online"`    // It went online, and sends heartbeats.
	Alive       bool   `json:"alive"`     // It sent a heartbeat recently.
	Reachable   bool   `json:"reachable"` // All three.
	Occupancy   int    `json:"occupancy"` // Open engagements.
	Capacity    int    `json:"capacity"`
}

// Engagement is a place with a provider.
type Engagement struct {
	Engagement string `json:"engagement"`
	Provider   string `json:"provider"`
	Status     string `json:"status"` // pending, active, ended, expired or cancelled.
}

// Available is a provider that has room.
type Available struct {
	Provider  string `json:"provider"`
	Occupancy int    `json:"occupancy"`
	Capacity  int    `json:"capacity"`
}

// ProviderOptions are the settings of a provider. Empty fields stay.
type ProviderOptions struct {
	Capacity    int
	DisplayName string
}

func (p *Provider) complete() bool { return p.Provider != "" }

func (e *Engagement) complete() bool { return e.Engagement != "" }

// Roster returns the roster of this name.
func (c *Client) Roster(name string) *Roster { return &Roster{client: c, name: name} }

func (r *Roster) call(method string, effect effect, path ...string) *call {
	return &call{method: method, effect: effect, token: r.Token, path: append([]string{"v1", "rosters", r.name}, path...)}
}

func (r *Roster) provider(ctx context.Context, request *call) (*Provider, error) {
	answer := &Provider{}
	request.answer = answer
	if err := r.client.do(ctx, request); err != nil {
		return nil, err
	}
	return answer, nil
}

// Put creates or changes a provider.
func (r *Roster) Put(ctx context.Context, provider string, options ProviderOptions) (*Provider, error) {
	body := map[string]any{}
	if options.Capacity > 0 {
		body["capacity"] = options.Capacity
	}
	if options.DisplayName != "" {
		body["display_name"] = options.DisplayName
	}
	request := r.call(http.MethodPut, commits, "providers", provider)
	request.body = body
	return r.provider(ctx, request)
}

// Online takes a provider online. Send a Heartbeat about every 30 seconds from then on.
func (r *Roster) Online(ctx context.Context, provider string) (*Provider, error) {
	return r.provider(ctx, r.call(http.MethodPost, commits, "providers", provider, "online"))
}

// Offline takes a provider offline.
func (r *Roster) Offline(ctx context.Context, provider string) (*Provider, error) {
	return r.provider(ctx, r.call(http.MethodPost, commits, "providers", provider, "offline"))
}

// Heartbeat keeps a provider online.
func (r *Roster) Heartbeat(ctx context.Context, provider string) error {
	request := r.call(http.MethodPost, reads, "providers", provider, "heartbeat")
	request.pool = beats
	return r.client.do(ctx, request)
}

// Provider looks up a provider; nil if it does not exist.
func (r *Roster) Provider(ctx context.Context, provider string) (*Provider, error) {
	return get[Provider](ctx, r.client, r.call(http.MethodGet, reads, "providers", provider))
}

// Available lists the providers that have room, least occupied first.
func (r *Roster) Available(ctx context.Context) ([]Available, error) {
	return list[Available](ctx, r.client, r.call(http.MethodGet, reads, "available"), "providers")
}

// Reserve reserves a place with the least occupied provider that has room. Repeating it with the same engagement
// returns the same answer; "" makes a new one.
func (r *Roster) Reserve(ctx context.Context, engagement string) (*Engagement, error) {
	return r.ReserveWith(ctx, engagement, ReserveOptions{})
}

// ReserveOptions limit which providers are reserved.
type ReserveOptions struct {
	Provider string   // This one or none.
	Exclude  []string // None of these.
}

// ReserveWith is Reserve with options.
func (r *Roster) ReserveWith(ctx context.Context, engagement string, options ReserveOptions) (*Engagement, error) {
	if engagement == "" {
		engagement = random(16)
	}
	body := map[string]any{"engagement": engagement}
	if options.Provider != "" {
		body["provider"] = options.Provider
	}
	if len(options.Exclude) > 0 {
		body["except"] = options.Exclude
	}
	return r.engagement(ctx, r.call(http.MethodPost, commits, "reserve"), body)
}

// ReleaseEngagement ends an engagement, which gives back its place.
func (r *Roster) ReleaseEngagement(ctx context.Context, engagement string) (*Engagement, error) {
	return r.engagement(ctx, r.call(http.MethodPatch, commits, "engagements", engagement), map[string]any{"status": "ended"})
}

func (r *Roster) engagement(ctx context.Context, request *call, body map[string]any) (*Engagement, error) {
	answer := &Engagement{}
	request.body, request.answer = body, answer
	if err := r.client.do(ctx, request); err != nil {
		return nil, err
	}
	return answer, nil
}
