package tenure

import (
	"context"
	"net/http"
	"net/url"
)

// Owner is the owner of a key.
type Owner struct {
	Key    string `json:"key"`
	Owner  string `json:"owner"`
	Tenure string `json:"tenure"`
	Alive  bool   `json:"alive"` // Whether that tenure is alive now, by the store's clock.
}

// Claim claims a key, also from another owner. The outcome is new, kept or moved. The key is claimed again when the
// membership joins again, unless another member has it by then.
func (m *Membership) Claim(ctx context.Context, registry, key string) (string, error) {
	return m.claim(ctx, registry, key, false)
}

// ClaimIfAbsent claims a key that has no living owner. CodeClaimHeld otherwise.
func (m *Membership) ClaimIfAbsent(ctx context.Context, registry, key string) (string, error) {
	return m.claim(ctx, registry, key, true)
}

func (m *Membership) claim(ctx context.Context, registry, key string, ifAbsent bool) (string, error) {
	act, err := m.act(false)
	if err != nil {
		return "", err
	}
	var answer struct {
		revised
		Outcome string `json:"outcome"`
	}
	request := m.call(http.MethodPut, changes, "registries", registry, "claims", key)
	request.body = map[string]any{"tenure": act.tenure, "if_absent": ifAbsent}
	request.answer = &answer
	if err := act.do(ctx, request); err != nil {
		return "", err
	}
	m.remember(claimKey{registry, key}, true)
	return answer.Outcome, nil
}

// ReleaseClaim releases a key.
func (m *Membership) ReleaseClaim(ctx context.Context, registry, key string) error {
	act, err := m.act(true)
	if err != nil {
		return err
	}
	m.remember(claimKey{registry, key}, false)
	request := m.call(http.MethodDelete, changes, "registries", registry, "claims", key)
	request.query = url.Values{"tenure": {act.tenure}}
	err = act.do(ctx, request)
	if Code(err) == CodeNotOwner && request.unheard {
		return nil // An attempt without an answer released it.
	}
	return err
}

func (m *Membership) remember(claim claimKey, held bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if held {
		m.claims[claim] = true
	} else {
		delete(m.claims, claim)
	}
}

// claimAgain repeats the claims, if a tenure began or the store lost writes. What another member has by now is
// forgotten.
func (m *Membership) claimAgain() error {
	m.mutex.Lock()
	if !m.reassert || m.reason != "" {
		m.mutex.Unlock()
		return nil
	}
	m.reassert = false
	keys := map[string][]string{}
	for claim := range m.claims {
		keys[claim.registry] = append(keys[claim.registry], claim.key)
	}
	m.mutex.Unlock()
	for registry, all := range keys {
		for len(all) > 0 {
			part := all
			if len(part) > claimBatch {
				part = part[:claimBatch]
			}
			all = all[len(part):]
			if err := m.claimPart(registry, part); err != nil {
				m.mutex.Lock()
				m.reassert = true
				m.mutex.Unlock()
				return err
			}
		}
	}
	return nil
}

func (m *Membership) claimPart(registry string, keys []string) error {
	act, err := m.act(false)
	if err != nil {
		return err
	}
	var answer struct {
		revised
		Results []struct{ Key, Outcome string }
	}
	request := m.call(http.MethodPost, changes, "registries", registry, "claims")
	request.body = map[string]any{"tenure": act.tenure, "keys": keys, "if_absent": true}
	request.answer = &answer
	if err := act.do(m.ctx, request); err != nil {
		return err
	}
	for _, result := range answer.Results {
		if result.Outcome == "held" {
			m.remember(claimKey{registry, result.Key}, false)
		}
	}
	return nil
}

// Owner looks up the owner of a key; nil if it has none.
func (c *Client) Owner(ctx context.Context, group, registry, key string) (*Owner, error) {
	return get[Owner](ctx, c, groupCall(http.MethodGet, reads, group, "registries", registry, "claims", key))
}
