package tenure

import (
	"context"
	"sync"
)

// turns lets one call at a time change one thing. A call whose caller gave up runs on until its outcome is known; until
// then no other call changes what it may have been granted.
type turns struct {
	mutex sync.Mutex
	busy  map[any]chan struct{}
}

// try takes the turn if it is free.
func (t *turns) try(thing any) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.busy[thing] != nil {
		return false
	}
	if t.busy == nil {
		t.busy = map[any]chan struct{}{}
	}
	t.busy[thing] = make(chan struct{})
	return true
}

func (t *turns) take(ctx context.Context, thing any) error {
	for !t.try(thing) {
		t.mutex.Lock()
		busy := t.busy[thing]
		t.mutex.Unlock()
		if busy == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return gaveUp(ctx, Unchanged)
		case <-busy:
		}
	}
	if ctx.Err() != nil {
		t.free(thing)
		return gaveUp(ctx, Unchanged)
	}
	return nil
}

func (t *turns) free(things ...any) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, thing := range things {
		close(t.busy[thing])
		delete(t.busy, thing)
	}
}

// grant makes a call that may be granted things. If its caller has given up by then, undo gives them back.
func (t *turns) grant(ctx context.Context, things []any, call func(context.Context) error, undo func(context.Context)) error {
	for place, thing := range things {
		if err := t.take(ctx, thing); err != nil {
			t.free(things[:place]...)
			return err
		}
	}
	return runOn(ctx, call, func(heard bool, err error) {
		defer t.free(things...)
		if !heard && (err == nil || err.(*Error).Outcome == Unknown) {
			undo(context.Background())
		}
	})
}

// giveBack makes a call that gives something back, also if its caller has given up.
func (t *turns) giveBack(ctx context.Context, thing any, call func(context.Context) error) error {
	return runOn(ctx, func(ctx context.Context) error {
		if err := t.take(ctx, thing); err != nil {
			return err
		}
		defer t.free(thing)
		return call(ctx)
	}, func(bool, error) {})
}

// runOn waits for a call until ctx is done; the call runs on. After it, after learns whether its caller heard the outcome.
func runOn(ctx context.Context, call func(context.Context) error, after func(heard bool, err error)) error {
	answered := make(chan error)
	go func() {
		err := call(detached{context.Background(), ctx})
		select {
		case answered <- err:
			after(true, err)
		case <-ctx.Done():
			after(false, err)
		}
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return gaveUp(ctx, Unknown)
	}
}

// detached has the values of a context, and does not end with it.
type detached struct {
	context.Context
	caller context.Context
}

func (d detached) Value(key any) any { return d.caller.Value(key) }

func gaveUp(ctx context.Context, outcome Outcome) *Error {
	return &Error{Code: CodeUnreachable, Detail: "the caller gave up", Outcome: outcome, Cause: ctx.Err()}
}

// isGivenUp reports whether the caller of a detached call has given up.
func isGivenUp(ctx context.Context) bool {
	given, ok := ctx.(detached)
	return ok && given.caller.Err() != nil
}
