// A node of a polling fleet: each target of the group is polled by exactly one node. Start it on several machines.
//
//	tenure targets add endpoint-1 endpoint-2 endpoint-3 --group pollers
//	go run ./examples/fleet pollers node-1
//
// TERM drains it: its targets go to the other nodes within a second.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	tenure "example.invalid/tenure"
)

const every = 200 * time.Millisecond

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: fleet GROUP NODE")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, group, node string) error {
	client, err := tenure.NewClient(tenure.Options{})
	if err != nil {
		return err
	}
	member, err := client.Join(ctx, group, node, tenure.JoinOptions{TTL: 6 * time.Second, Patience: time.Minute})
	if err != nil {
		return err
	}
	fleet := member.Fleet(poll, tenure.FleetOptions{})
	select {
	case <-ctx.Done():
	case <-member.Done(): // Superseded or expelled.
		return member.Err()
	}
	if stubborn := fleet.Drain(context.Background()); len(stubborn) > 0 {
		return fmt.Errorf("the work on %v does not end; the leases are free after the ttl", stubborn)
	}
	return member.Leave(context.Background())
}

// poll works on one target for as long as this node has it.
func poll(ctx context.Context, assignment *tenure.Assignment) {
	for assignment.NextCycle(every) {
		at := time.Now() // Before the verdict, as the time of what follows.
		if assignment.Lease.Held() {
			// Give the token to what you write to, so that it can reject late writers.
			fmt.Println("poll", assignment.Target, assignment.Lease.Token(), at.UnixNano())
		}
	}
}
