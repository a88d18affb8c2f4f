package tenure

import (
	"context"
	"net/http"
)

// Target is a thing that one node of a fleet works on: the one that holds the lease of its name.
type Target struct {
	Target    string `json:"target"`
	Paused    bool   `json:"paused"`
	Weight    int    `json:"weight"`
	Preferred string `json:"preferred"` // The node that should have it. Only the lease decides.
	Holder    string `json:"holder"`    // The node that has it; empty if the lease is free.
	Tenure    string `json:"tenure"`
	Alive     bool   `json:"alive"` // Whether that tenure is alive.
}

// Targets lists the targets of a group.
func (c *Client) Targets(ctx context.Context, group string) ([]Target, error) {
	return list[Target](ctx, c, groupCall(http.MethodGet, reads, group, "targets"), "targets")
}

// PutTarget adds a target, or pauses it: no node works on a paused one.
func (c *Client) PutTarget(ctx context.Context, group, target string, paused bool) error {
	request := groupCall(http.MethodPut, changes, group, "targets", target)
	request.body = map[string]any{"paused": paused}
	return c.do(ctx, request)
}

// RemoveTarget removes a target, if it exists.
func (c *Client) RemoveTarget(ctx context.Context, group, target string) error {
	err := c.do(ctx, groupCall(http.MethodDelete, changes, group, "targets", target))
	if Code(err) == CodeNotFound {
		return nil
	}
	return err
}
