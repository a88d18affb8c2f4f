// A worker that works only while it holds a lease. Start it several times: one works, the others wait to take over.
//
//	go run ./examples/worker GROUP MEMBER LEASE FILE
//
// Each step of its work appends the fencing token to FILE. It exits with code 3 when it loses the lease; restart it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	tenure "example.invalid/tenure"
)

const (
	ttl  = 3 * time.Second
	step = 200 * time.Millisecond
)

var errLost = errors.New("the lease is lost")

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: worker GROUP MEMBER LEASE FILE")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4])
	switch {
	case errors.Is(err, errLost):
		fmt.Println("lost")
		os.Exit(3)
	case err != nil && ctx.Err() == nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, group, name, leaseName, path string) error {
	client, err := tenure.NewClient(tenure.Options{})
	if err != nil {
		return err
	}
	member, err := client.Join(ctx, group, name, tenure.JoinOptions{TTL: ttl})
	if err != nil {
		return err
	}
	defer member.Leave(context.Background()) // Also after ctx is done.
	lease, err := acquire(ctx, member, leaseName)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Println("acquired", lease.Token())
	for ctx.Err() == nil {
		switch lease.Verdict() {
		case tenure.Lost:
			return errLost
		case tenure.Held: // While it is uncertain: pause.
			if _, err := fmt.Fprintln(file, lease.Token()); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-lease.Lost():
		case <-time.After(step):
		}
	}
	return nil
}

// acquire tries until the lease is granted. With a daemon that can wait, AcquireOptions.Wait does it.
func acquire(ctx context.Context, member *tenure.Membership, lease string) (*tenure.Lease, error) {
	for {
		held, err := member.Acquire(ctx, lease, tenure.AcquireOptions{})
		var failed *tenure.Error
		if err == nil || !errors.As(err, &failed) || failed.Code != tenure.CodeLeaseHeld && failed.Code != tenure.CodeUnsettled {
			return held, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(step):
		}
	}
}
