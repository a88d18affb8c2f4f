package tenure

import (
	"context"
	"strconv"
	"sync"
	"time"
)

const (
	draining     = "fleet.draining" // The registry in which a node that takes no more targets claims its own name.
	weightLabel  = "fleet.weight"
	rankDelay    = 200 * time.Millisecond
	maxRankDelay = 2 * time.Second
)

// FleetOptions configure a Fleet. All fields may be empty.
type FleetOptions struct {
	// Every is how often the targets are read. Default: half a second.
	Every time.Duration
	// Stability is how long a target has to prefer another node before it moves there. Default: ten seconds.
	Stability time.Duration
	// StopWithin is how long Drain waits for work to end. Default: five seconds.
	StopWithin time.Duration
}

// Assignment is a target that this node works on, for as long as it holds its lease.
type Assignment struct {
	Target string
	Lease  *Lease
	ctx    context.Context
	done   chan struct{}
	stop   context.CancelFunc
}

// NextCycle waits for a pause, and until the lease is held. False: end the work.
func (a *Assignment) NextCycle(pause time.Duration) bool {
	for ; sleep(a.ctx, pause) == nil; pause = firstTry {
		if verdict := a.Lease.Verdict(); verdict != Uncertain {
			return verdict == Held
		}
	}
	return false
}

// Fleet is this node's part in a fleet: nodes that share targets, so that exactly one works on each.
type Fleet struct {
	m       *Membership
	work    func(context.Context, *Assignment)
	options FleetOptions
	ctx     context.Context
	end     context.CancelFunc
	ended   chan struct{}

	mutex sync.Mutex
	held  map[string]*Assignment
	free  map[string]instant // Since when free targets are.
	away  map[string]instant // Since when targets that are held here prefer another node.
}

// Fleet begins to work on targets of the group. Every node runs the same program. Work runs in a goroutine for each target whose
// lease this node holds, and continues while Assignment.NextCycle is true; its context is cancelled when it has to end.
//
// A target is taken by the node that it prefers; when that one does not come, by the next one. Work that does not end keeps its
// lease.
func (m *Membership) Fleet(work func(context.Context, *Assignment), options FleetOptions) *Fleet {
	for _, of := range []struct {
		value *time.Duration
		usual time.Duration
	}{{&options.Every, time.Second / 2}, {&options.Stability, 10 * time.Second}, {&options.StopWithin, 5 * time.Second}} {
		if *of.value <= 0 {
			*of.value = of.usual
		}
	}
	f := &Fleet{m: m, work: work, options: options, ended: make(chan struct{}), held: map[string]*Assignment{}}
	f.ctx, f.end = context.WithCancel(context.Background())
	go f.run()
	return f
}

// Held has the targets that this node works on.
func (f *Fleet) Held() []string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	names := []string{}
	for name := range f.held {
		names = append(names, name)
	}
	return names
}

// Drain ends the work and releases the leases to the other nodes. Then the member can leave. It returns the targets whose work did
// not end in time, and whose leases are still held: end the process, so that they are free after its ttl.
func (f *Fleet) Drain(ctx context.Context) []string {
	f.end()
	<-f.ended
	_, _ = f.m.Claim(ctx, draining, f.m.Member()) // Without it the other nodes take the targets a little later.
	ctx, cancel := context.WithTimeout(ctx, f.options.StopWithin)
	defer cancel()
	for _, assignment := range f.held {
		assignment.stop()
	}
	for name, assignment := range f.held {
		select {
		case <-assignment.done:
		case <-ctx.Done():
		}
		f.giveUp(name, "")
	}
	return f.Held()
}

func (f *Fleet) run() {
	defer close(f.ended)
	for sleep(f.ctx, f.options.Every) == nil {
		_ = f.look() // Work on held leases continues while their verdict is Held.
	}
}

// look releases targets of other nodes and acquires those of this one. It reads all targets or does nothing.
func (f *Fleet) look() error {
	listed, err := f.m.client.Targets(f.ctx, f.m.group)
	if err != nil {
		return err
	}
	targets := make(map[string]*Target, len(listed))
	for i := range listed {
		targets[listed[i].Target] = &listed[i]
	}
	for name, assignment := range f.held {
		if target := targets[name]; target == nil || target.Paused || isClosed(assignment.done) {
			f.giveUp(name, "")
		}
	}
	f.handOver(targets)
	wanted, err := f.wanted(targets)
	if err != nil || len(wanted) == 0 {
		return err
	}
	leases, err := f.m.AcquireMany(f.ctx, wanted)
	for _, lease := range leases {
		f.begin(lease)
	}
	return err
}

func (f *Fleet) begin(lease *Lease) {
	a := &Assignment{Target: lease.Name(), Lease: lease, done: make(chan struct{})}
	a.ctx, a.stop = lease.Context(context.Background())
	f.mutex.Lock()
	f.held[a.Target] = a
	f.mutex.Unlock()
	go func() {
		defer close(a.done)
		f.work(a.ctx, a)
	}()
}

// handOver gives targets to nodes that they have preferred for long, so that one that comes and goes moves nothing.
func (f *Fleet) handOver(targets map[string]*Target) {
	away := map[string]instant{}
	for name := range f.held {
		if target := targets[name]; target != nil && target.Preferred != "" && target.Preferred != f.m.member {
			away[name] = since(f.away, name)
		}
	}
	f.away = away
	for name, at := range away {
		if now().since(at) >= f.options.Stability {
			f.giveUp(name, targets[name].Preferred)
		}
	}
}

// wanted has the free targets whose turn for this node has come. A target that this tenure holds without work: an answer was lost.
func (f *Fleet) wanted(targets map[string]*Target) ([]string, error) {
	free, mine := map[string]instant{}, f.m.Tenure()
	var nodes map[string]int
	wanted := []string{}
	for name, target := range targets {
		if target.Paused || f.held[name] != nil || target.Alive && target.Tenure != mine {
			continue
		}
		free[name] = since(f.free, name)
		var delay time.Duration
		if target.Preferred != f.m.member {
			if nodes == nil {
				var err error
				if nodes, err = f.nodes(); err != nil {
					return nil, err
				}
			}
			delay = f.delay(name, nodes)
		}
		if now().since(free[name]) >= delay {
			wanted = append(wanted, name)
		}
	}
	f.free = free
	return wanted, nil
}

func (f *Fleet) delay(target string, nodes map[string]int) time.Duration {
	place := 0
	for _, name := range Rank(target, nodes) {
		if name == f.m.member {
			break
		}
		place++
	}
	return shorter(time.Duration(place)*rankDelay, maxRankDelay)
}

func (f *Fleet) nodes() (map[string]int, error) {
	members, err := f.m.client.Members(f.ctx, f.m.group)
	nodes := map[string]int{}
	for _, member := range members {
		if weight, err := strconv.Atoi(member.Labels[weightLabel]); member.Alive && err == nil {
			nodes[member.Member] = weight
		} else if member.Alive {
			nodes[member.Member] = 1
		}
	}
	return nodes, err
}

// giveUp stops the work. Its lease is released when it has ended.
func (f *Fleet) giveUp(name, to string) {
	assignment := f.held[name]
	assignment.stop()
	select {
	case <-assignment.done:
	case <-time.After(firstTry):
		return
	}
	f.mutex.Lock()
	delete(f.held, name)
	f.mutex.Unlock()
	if to == "" {
		_ = assignment.Lease.Release(context.Background()) // A failure is repeated in the background.
	} else {
		_, _ = assignment.Lease.HandOff(context.Background(), to)
	}
}

func since(before map[string]instant, name string) instant {
	if at, is := before[name]; is {
		return at
	}
	return now()
}

func isClosed(channel chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}
