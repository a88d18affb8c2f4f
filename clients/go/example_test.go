package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	tenure "example.invalid/tenure"
)

func Example() {
	client, err := tenure.NewClient(tenure.Options{}) // TENURE_STORE and TENURE_TOKEN
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	member, err := client.Join(ctx, "ingest", "gw-1", tenure.JoinOptions{TTL: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer member.Leave(ctx)
	outcome, err := member.Claim(ctx, "devices", "cam-17")
	fmt.Println(outcome, member.Verdict(), err)
	// Output: new held <nil>
}

func ExampleMembership_Acquire() {
	client, err := tenure.NewClient(tenure.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	member, err := client.Join(ctx, "reports", "worker-1", tenure.JoinOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer member.Leave(ctx)
	lease, err := member.Acquire(ctx, "nightly", tenure.AcquireOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	for page := 1; page <= 2 && lease.Held(); page++ {
		fmt.Println("write page", page) // Send lease.Token() along.
	}
	// Output:
	// write page 1
	// write page 2
}

func ExampleError() {
	client, err := tenure.NewClient(tenure.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Join(context.Background(), "ingest", "not a name", tenure.JoinOptions{})
	var failed *tenure.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Code, failed.Status, failed.Outcome)
	}
	// Output: invalid 422 unchanged
}

func ExampleClient_Follow() {
	client, err := tenure.NewClient(tenure.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	member, err := client.Join(ctx, "followed", "gw-1", tenure.JoinOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer member.Leave(ctx)
	event, err := client.Follow("followed", "", "joined", "left").Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if event.Type == tenure.TypeGap {
		fmt.Println("events are missing: read the state again")
	}
	fmt.Println(event.Type, event.Member)
	// Output: joined gw-1
}
