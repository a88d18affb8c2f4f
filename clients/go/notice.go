package tenure

// Notice is a change of a membership.
type Notice struct {
	Kind       string // NoticeEnded, NoticeRejoined, NoticeLeaseLost, NoticeClaimLost or NoticeSessionLost.
	Tenure     string
	Reason     string // With NoticeEnded, NoticeLeaseLost and NoticeSessionLost (gone: it was reaped).
	Lease      *Lease // With NoticeLeaseLost.
	Registry   string // With NoticeClaimLost.
	Key        string
	Owner      string // The member that has the key.
	Session    string // With NoticeSessionLost.
	Connection string
}

// The kinds of a Notice.
const (
	NoticeEnded     = "ended"
	NoticeRejoined  = "rejoined"
	NoticeLeaseLost = "lease_lost"
	// NoticeClaimLost: another member has the key. It is not claimed again.
	NoticeClaimLost = "claim_lost"
	// NoticeSessionLost: the connection could not be attached again after a lapse.
	NoticeSessionLost = "session_lost"
)

// notice hands a change to the goroutine that calls Notify.
func (m *Membership) notice(notice Notice) {
	if m.options.Notify != nil {
		m.pending = append(m.pending, notice)
		wake(m.notices)
	}
}

// tell calls Notify, also for what is pending when the membership ends.
func (m *Membership) tell() {
	for over := false; ; {
		m.mutex.Lock()
		pending := m.pending
		m.pending = nil
		m.mutex.Unlock()
		for _, notice := range pending {
			m.options.Notify(notice)
		}
		if over {
			return
		}
		select {
		case <-m.notices:
		case <-m.ctx.Done():
			over = true
		}
	}
}
