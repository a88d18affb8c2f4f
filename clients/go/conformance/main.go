// The driver of the conformance suite: it turns the commands of clients/conformance/PROTOCOL.md into calls of the
// package.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	tenure "example.invalid/tenure"
)

type object = map[string]any

// command is one line of the runner.
type command struct {
	ID           json.Number       `json:"id"`
	Op           string            `json:"op"`
	Group        string            `json:"group"`
	Member       string            `json:"member"`
	TTL          int64             `json:"ttl_ms"`
	Labels       map[string]string `json:"labels"`
	Rejoin       *bool             `json:"rejoin"`
	Handle       string            `json:"handle"`
	Registry     string            `json:"registry"`
	Key          string            `json:"key"`
	IfAbsent     bool              `json:"if_absent"`
	Lease        string            `json:"lease"`
	LeaseHandle  string            `json:"lease_handle"`
	Wait         int64             `json:"wait_ms"`
	Holders      int               `json:"holders"`
	To           string            `json:"to"`
	File         string            `json:"file"`
	Period       int64             `json:"period_ms"`
	Stability    int64             `json:"stability_ms"`
	Session      string            `json:"session"`
	State        string            `json:"state"`
	OlderThan    int64             `json:"older_than_ms"`
	Connection   string            `json:"connection"`
	Data         object            `json:"data"`
	Grace        int64             `json:"grace_ms"`
	After        any               `json:"after"`
	Limit        int               `json:"limit"`
	Follow       string            `json:"follow"`
	Roster       string            `json:"roster"`
	Provider     string            `json:"provider"`
	Capacity     int               `json:"capacity"`
	DisplayName  string            `json:"display_name"`
	EngagementID string            `json:"engagement"`
}

type driver struct {
	client *tenure.Client
	out    sync.Mutex

	mutex     sync.Mutex
	made      int
	members   map[string]*tenure.Membership
	leases    map[string]*tenure.Lease
	followers map[string]context.CancelFunc
	fleets    map[string]*tenure.Fleet
}

func main() {
	client, err := tenure.NewClient(tenure.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	d := &driver{client: client, members: map[string]*tenure.Membership{}, leases: map[string]*tenure.Lease{},
		followers: map[string]context.CancelFunc{}, fleets: map[string]*tenure.Fleet{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		given := command{}
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			fmt.Fprintln(os.Stderr, "a line cannot be read:", err)
			continue
		}
		go d.answer(given)
	}
}

func (d *driver) answer(given command) {
	ok, err := d.run(context.Background(), given)
	if err == nil {
		d.write(object{"id": given.ID, "ok": ok})
		return
	}
	told := object{"code": "bad_command", "status": 0, "outcome": "unchanged", "message": err.Error()}
	var failed *tenure.Error
	if errors.As(err, &failed) {
		told["code"], told["status"], told["outcome"] = failed.Code, failed.Status, failed.Outcome
		if failed.Reason != "" {
			told["reason"] = failed.Reason
		}
		if failed.RetryAfter > 0 {
			told["retry_after_ms"] = failed.RetryAfter.Milliseconds()
		}
	}
	d.write(object{"id": given.ID, "error": told})
}

func (d *driver) write(line object) {
	encoded, err := json.Marshal(line)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	d.out.Lock()
	defer d.out.Unlock()
	if _, err := os.Stdout.Write(append(encoded, '\n')); err != nil {
		os.Exit(1)
	}
}

func (d *driver) run(ctx context.Context, given command) (any, error) {
	switch given.Op {
	case "join", "inherit":
		return d.join(ctx, given)
	case "members":
		members, err := d.client.Members(ctx, given.Group)
		return object{"members": members}, err
	case "owner":
		return d.client.Owner(ctx, given.Group, given.Registry, given.Key)
	case "lease":
		return d.client.Lease(ctx, given.Group, given.Lease)
	case "lease_verdict", "release", "work":
		return d.lease(ctx, given)
	case "session":
		return d.client.Session(ctx, given.Group, given.Session)
	case "sessions":
		which := tenure.SessionsOf{State: given.State, OlderThan: time.Duration(given.OlderThan) * time.Millisecond}
		sessions, err := d.client.Sessions(ctx, given.Group, which)
		return object{"sessions": sessions}, err
	case "events", "follow", "unfollow":
		return d.events(ctx, given)
	case "provider_put", "provider", "online", "offline", "heartbeat", "available", "reserve", "release_engagement":
		return d.roster(ctx, given)
	}
	d.mutex.Lock()
	member := d.members[given.Handle]
	d.mutex.Unlock()
	if member == nil {
		if given.Op == "patch_session" {
			return d.client.PatchSession(ctx, given.Group, given.Session, given.Data)
		}
		return nil, fmt.Errorf("unknown operation %q or handle %q", given.Op, given.Handle)
	}
	return d.member(ctx, member, given)
}

func (d *driver) join(ctx context.Context, given command) (any, error) {
	handle := d.name("m")
	options := tenure.JoinOptions{
		TTL:      time.Duration(given.TTL) * time.Millisecond,
		Labels:   given.Labels,
		NoRejoin: given.Rejoin != nil && !*given.Rejoin,
		Notify:   func(notice tenure.Notice) { d.notice(handle, given.Member, notice) },
	}
	join := func() (*tenure.Membership, error) { return d.client.Join(ctx, given.Group, given.Member, options) }
	if given.Op == "inherit" {
		join = func() (*tenure.Membership, error) { return d.client.Inherit(ctx, options) }
	}
	member, err := join()
	if err != nil {
		return nil, err
	}
	d.mutex.Lock()
	d.members[handle] = member
	d.mutex.Unlock()
	return object{"handle": handle, "tenure": member.Tenure()}, nil
}

func (d *driver) notice(handle, member string, notice tenure.Notice) {
	if notice.Kind == tenure.NoticeClaimLost || notice.Kind == tenure.NoticeSessionLost {
		return // The protocol of the suite does not have them.
	}
	line := object{"event": notice.Kind, "handle": handle, "member": member, "tenure": notice.Tenure}
	if notice.Kind == tenure.NoticeEnded {
		line["reason"] = notice.Reason
	}
	if lost := notice.Lease; lost != nil {
		line["lease"], line["token"], line["lease_handle"] = lost.Name(), lost.Token(), leaseHandle(lost)
	}
	d.write(line)
}

// leaseHandle needs no table, so that a lease that is lost right after it was granted has its handle.
func leaseHandle(lease *tenure.Lease) string {
	return fmt.Sprintf("%s/%d", lease.Name(), lease.Token())
}

func (d *driver) name(kind string) string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.made++
	return fmt.Sprintf("%s%d", kind, d.made)
}

// fleet works on targets: each cycle is a line in a file.
func (d *driver) fleet(member *tenure.Membership, given command) error {
	file, err := os.OpenFile(given.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	period := time.Duration(given.Period) * time.Millisecond
	work := func(_ context.Context, assignment *tenure.Assignment) {
		for assignment.NextCycle(period) {
			at := monotonic()
			if assignment.Lease.Held() {
				fmt.Fprintf(file, "%s %d %d\n", assignment.Target, assignment.Lease.Token(), at)
			}
		}
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.fleets[given.Handle] = member.Fleet(work, tenure.FleetOptions{Stability: time.Duration(given.Stability) * time.Millisecond})
	return nil
}

func (d *driver) member(ctx context.Context, member *tenure.Membership, given command) (any, error) {
	switch given.Op {
	case "verdict":
		return object{"verdict": member.Verdict(), "tenure": member.Tenure()}, nil
	case "leave":
		return object{}, member.Leave(ctx)
	case "labels":
		return object{}, member.SetLabels(ctx, given.Labels)
	case "claim":
		claim := member.Claim
		if given.IfAbsent {
			claim = member.ClaimIfAbsent
		}
		outcome, err := claim(ctx, given.Registry, given.Key)
		return object{"outcome": outcome}, err
	case "release_claim":
		return object{}, member.ReleaseClaim(ctx, given.Registry, given.Key)
	case "acquire":
		lease, err := member.Acquire(ctx, given.Lease, tenure.AcquireOptions{
			Wait: time.Duration(given.Wait) * time.Millisecond, Holders: given.Holders})
		if err != nil {
			return nil, err
		}
		d.mutex.Lock()
		d.leases[leaseHandle(lease)] = lease
		d.mutex.Unlock()
		return object{"lease_handle": leaseHandle(lease), "token": lease.Token(), "place": lease.Place(), "generation": lease.Generation(),
			"waited_ms": lease.Waited().Milliseconds()}, nil
	case "fleet":
		return object{}, d.fleet(member, given)
	case "drain":
		d.mutex.Lock()
		fleet := d.fleets[given.Handle]
		d.mutex.Unlock()
		return object{"stubborn": fleet.Drain(ctx)}, nil
	case "attach":
		return member.Attach(ctx, given.Session, given.Connection, tenure.AttachOptions{
			Data: given.Data, Grace: time.Duration(given.Grace) * time.Millisecond})
	case "detach":
		return object{}, member.Detach(ctx, given.Session, given.Connection)
	case "patch_session":
		return member.PatchSession(ctx, given.Session, given.Data)
	}
	return nil, fmt.Errorf("unknown operation %q", given.Op)
}

func (d *driver) lease(ctx context.Context, given command) (any, error) {
	d.mutex.Lock()
	lease := d.leases[given.LeaseHandle]
	d.mutex.Unlock()
	if lease == nil {
		return nil, fmt.Errorf("unknown lease handle %q", given.LeaseHandle)
	}
	switch given.Op {
	case "lease_verdict":
		return object{"verdict": lease.Verdict(), "token": lease.Token()}, nil
	case "work":
		file, err := os.OpenFile(given.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, err
		}
		go work(lease, file, time.Duration(given.Period)*time.Millisecond)
		return object{}, nil
	}
	if given.To != "" {
		_, err := lease.HandOff(ctx, given.To)
		return object{}, err
	}
	return object{}, lease.Release(ctx)
}

// work reads the clock before the verdict: a line proves that the lease was held at its time.
func work(lease *tenure.Lease, file *os.File, period time.Duration) {
	defer file.Close()
	for ; ; time.Sleep(period) {
		at := monotonic()
		switch lease.Verdict() {
		case tenure.Lost:
			return
		case tenure.Held:
			if _, err := fmt.Fprintf(file, "%d %d\n", lease.Token(), at); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
		}
	}
}

func (d *driver) events(ctx context.Context, given command) (any, error) {
	after := ""
	if given.After != nil {
		after = fmt.Sprint(given.After)
		if number, ok := given.After.(float64); ok {
			after = fmt.Sprintf("%.0f", number)
		}
	}
	switch given.Op {
	case "events":
		page, err := d.client.Events(ctx, given.Group, after, given.Limit)
		if err != nil {
			return nil, err
		}
		items := make([]json.RawMessage, len(page.Events))
		for place, event := range page.Events {
			items[place] = event.Raw
		}
		return object{"items": items, "next": page.Next, "missed": page.Missed}, nil
	case "unfollow":
		d.mutex.Lock()
		defer d.mutex.Unlock()
		if cancel := d.followers[given.Follow]; cancel != nil {
			cancel()
		}
		return object{}, nil
	}
	handle := d.name("f")
	ctx, cancel := context.WithCancel(context.Background())
	d.mutex.Lock()
	d.followers[handle] = cancel
	d.mutex.Unlock()
	go d.follow(ctx, handle, d.client.Follow(given.Group, after))
	return object{"follow": handle}, nil
}

func (d *driver) follow(ctx context.Context, handle string, follower *tenure.Follower) {
	for {
		event, err := follower.Next(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, handle, err)
			return
		}
		if event.Type == tenure.TypeGap {
			d.write(object{"event": "gap", "follow": handle})
		} else {
			d.write(object{"event": "item", "follow": handle, "item": event.Raw})
		}
	}
}

func (d *driver) roster(ctx context.Context, given command) (any, error) {
	roster := d.client.Roster(given.Roster)
	switch given.Op {
	case "provider_put":
		return roster.Put(ctx, given.Provider, tenure.ProviderOptions{Capacity: given.Capacity, DisplayName: given.DisplayName})
	case "provider":
		return roster.Provider(ctx, given.Provider)
	case "online":
		return roster.Online(ctx, given.Provider)
	case "offline":
		return roster.Offline(ctx, given.Provider)
	case "heartbeat":
		return object{}, roster.Heartbeat(ctx, given.Provider)
	case "reserve":
		reserved, err := roster.Reserve(ctx, given.EngagementID)
		if err != nil {
			return nil, err
		}
		return object{"engagement": reserved.Engagement, "provider": reserved.Provider}, nil
	case "release_engagement":
		return roster.ReleaseEngagement(ctx, given.EngagementID)
	}
	available, err := roster.Available(ctx)
	names := make([]string, len(available))
	for place, one := range available {
		names[place] = one.Provider
	}
	return object{"providers": names}, err
}
