package tenure

import (
	"context"
	"net/http"
	"net/url"
	"sort"
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
	claim, answer := claimKey{registry, key}, &claimAnswer{}
	had := false
	err := m.turns.grant(ctx, []any{claim}, func(ctx context.Context) error {
		had = m.isClaimed(claim)
		act, err := m.act(false)
		if err != nil {
			return err
		}
		request := m.call(http.MethodPut, changes, "registries", registry, "claims", key)
		request.body = map[string]any{"tenure": act.tenure, "if_absent": ifAbsent}
		request.answer = answer
		if err := act.do(ctx, request); err != nil {
			return err
		}
		m.remember(claim, true)
		return nil
	}, func(ctx context.Context) {
		if !had {
			_ = m.releaseClaim(ctx, claim)
		}
	})
	if err != nil {
		return "", err
	}
	return answer.Outcome, nil
}

type claimAnswer struct {
	revised
	Outcome string `json:"outcome"`
}

func (a *claimAnswer) complete() bool { return a.Outcome != "" }

// ClaimResult is the result for one of many keys.
type ClaimResult struct {
	Key     string `json:"key"`
	Outcome string `json:"outcome"` // new, kept, moved, or held: another member has it.
	Owner   string `json:"owner"`   // With held: that member.
}

// ClaimMany claims keys that have no living owner, 200 in a call. The results are in the order of the keys. After an error the
// parts before it are claimed.
func (m *Membership) ClaimMany(ctx context.Context, registry string, keys []string) ([]ClaimResult, error) {
	all := make([]ClaimResult, 0, len(keys))
	for len(keys) > 0 {
		part := keys
		if len(part) > batch {
			part = part[:batch]
		}
		keys = keys[len(part):]
		claims, fresh := map[claimKey]bool{}, []claimKey{}
		for _, key := range part {
			claims[claimKey{registry, key}] = true
		}
		var results []ClaimResult
		err := m.turns.grant(ctx, sorted(claims), func(ctx context.Context) (err error) {
			for claim := range claims {
				if !m.isClaimed(claim) {
					fresh = append(fresh, claim)
				}
			}
			results, err = m.claimPart(ctx, registry, part)
			for _, result := range results {
				m.remember(claimKey{registry, result.Key}, result.Outcome != "held")
			}
			return err
		}, func(ctx context.Context) {
			for _, claim := range fresh {
				_ = m.releaseClaim(ctx, claim)
			}
		})
		if err != nil {
			return all, err
		}
		all = append(all, results...)
	}
	return all, nil
}

func (m *Membership) claimPart(ctx context.Context, registry string, keys []string) ([]ClaimResult, error) {
	act, err := m.act(false)
	if err != nil {
		return nil, err
	}
	answer := &claimsAnswer{asked: keys}
	request := m.call(http.MethodPost, changes, "registries", registry, "claims")
	request.body = map[string]any{"tenure": act.tenure, "keys": keys, "if_absent": true}
	request.answer = answer
	err = act.do(ctx, request)
	return answer.Results, err
}

// sorted has the keys in the order in which all calls take their turns, so that no two wait for each other.
func sorted(claims map[claimKey]bool) []any {
	all := make([]any, 0, len(claims))
	for claim := range claims {
		all = append(all, claim)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].(claimKey).key < all[j].(claimKey).key })
	return all
}

type claimsAnswer struct {
	revised
	asked   []string
	Results []ClaimResult `json:"results"`
}

func (a *claimsAnswer) complete() bool {
	whole := len(a.Results) == len(a.asked)
	for place := 0; whole && place < len(a.asked); place++ {
		whole = a.Results[place].Key == a.asked[place] && a.Results[place].Outcome != ""
	}
	return whole
}

// ReleaseClaim releases a key.
func (m *Membership) ReleaseClaim(ctx context.Context, registry, key string) error {
	claim := claimKey{registry, key}
	return m.turns.giveBack(ctx, claim, func(ctx context.Context) error { return m.releaseClaim(ctx, claim) })
}

func (m *Membership) releaseClaim(ctx context.Context, claim claimKey) error {
	act, err := m.act(true)
	if err != nil {
		return err
	}
	m.remember(claim, false)
	request := m.call(http.MethodDelete, changes, "registries", claim.registry, "claims", claim.key)
	request.query = url.Values{"tenure": {act.tenure}}
	err = act.do(ctx, request)
	if Code(err) == CodeNotOwner && request.unheard {
		return nil // An attempt without an answer released it.
	}
	return err
}

func (m *Membership) isClaimed(claim claimKey) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.claims[claim]
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

// claimAgain repeats the claims, if a tenure began, the store lost writes, or it is time to check them. What another member
// has by now is reported.
func (m *Membership) claimAgain() error {
	m.mutex.Lock()
	if !m.reassert || m.reason != "" {
		m.mutex.Unlock()
		return nil
	}
	m.reassert, m.checked = false, now()
	keys := map[string][]string{}
	for claim := range m.claims {
		keys[claim.registry] = append(keys[claim.registry], claim.key)
	}
	m.mutex.Unlock()
	var failed error
	for registry, all := range keys {
		for from := 0; from < len(all); from += batch {
			to := from + batch
			if to > len(all) {
				to = len(all)
			}
			if err := m.reclaim(registry, all[from:to]); err != nil {
				failed = err
			}
		}
	}
	if failed != nil {
		m.mutex.Lock()
		m.reassert = true
		m.mutex.Unlock()
	}
	return failed
}

// reclaim claims keys again, but those that a call changes at the moment: they are left for the next time.
func (m *Membership) reclaim(registry string, keys []string) error {
	var free []string
	var left error
	for _, key := range keys {
		claim := claimKey{registry, key}
		if !m.turns.try(claim) {
			left = errBusy
			continue
		}
		defer m.turns.free(claim)
		if m.isClaimed(claim) {
			free = append(free, key)
		}
	}
	if len(free) == 0 {
		return left
	}
	results, err := m.claimPart(m.ctx, registry, free)
	if err != nil {
		return err
	}
	for _, result := range results {
		if result.Outcome == "held" {
			m.remember(claimKey{registry, result.Key}, false)
			m.mutex.Lock()
			m.notice(Notice{Kind: NoticeClaimLost, Tenure: m.tenure, Registry: registry, Key: result.Key, Owner: result.Owner})
			m.mutex.Unlock()
		}
	}
	return left
}

func (o *Owner) complete() bool { return o.Tenure != "" }

// Owner looks up the owner of a key; nil if it has none.
func (c *Client) Owner(ctx context.Context, group, registry, key string) (*Owner, error) {
	return get[Owner](ctx, c, groupCall(http.MethodGet, reads, group, "registries", registry, "claims", key))
}
