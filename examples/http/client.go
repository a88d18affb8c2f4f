// A member of a group in Go, with only the standard library.
//
// It joins, sends heartbeats in the background, claims a device, acquires a lease, works while its verdict is held, and
// leaves on TERM or INT. Copy the type Tenure into your program; main is an example worker.
//
//	TENURE_STORE=http://127.0.0.1:7717 go run client.go GROUP MEMBER
//
// Exit codes: 0 it left, 3 its tenure ended (restart it to join again), 1 any other error.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	url   = getenv("TENURE_STORE", getenv("TENURE_URL", "http://127.0.0.1:7717"))
	token = os.Getenv("TENURE_TOKEN")
)

// Refused is an error response of the daemon. Programs check Code.
type Refused struct {
	Status       int    `json:"status"`
	Code         string `json:"code"`
	Detail       string `json:"detail"`
	Reason       string `json:"reason"`
	RetryAfterMs int64  `json:"retry_after_ms"`
}

func (refused *Refused) Error() string {
	return fmt.Sprintf("%d %s: %s", refused.Status, refused.Code, refused.Detail)
}

// call makes one call. After any error but a Refused the outcome is unknown.
func call(method, path string, body, answer any, timeout time.Duration) error {
	var sent bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&sent).Encode(body); err != nil {
			return err
		}
	}
	limit, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(limit, method, url+path, &sent)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	got, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	if got.StatusCode >= 300 {
		refused := &Refused{Status: got.StatusCode}
		_ = json.NewDecoder(got.Body).Decode(refused) // A proxy in between may send its own pages.
		return refused
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(got.Body).Decode(answer)
}

// elapsed is the time since then on a clock that includes suspend: Go's monotonic clock does not, and the wall clock may
// be set.
func elapsed(since time.Time) time.Duration {
	now := time.Now()
	monotonic, wall := now.Sub(since), now.Round(0).Sub(since.Round(0))
	if wall > monotonic {
		return wall
	}
	return monotonic
}

// Tenure is this process as a member, from Join until its tenure ends.
type Tenure struct {
	ID   string
	path string
	ttl  time.Duration
	stop chan struct{}
	done chan struct{}

	mutex     sync.Mutex
	confirmed time.Time
	ended     string
}

// Join begins a tenure and sends its heartbeats.
func Join(group, member string, ttl time.Duration) (*Tenure, error) {
	// The ttl runs from the time at which the last confirmed call was *sent*, which is before the store's start of it.
	tenure := &Tenure{path: "/v1/groups/" + group, ttl: ttl, confirmed: time.Now()}
	tenure.stop, tenure.done = make(chan struct{}), make(chan struct{})
	var joined struct {
		Tenure string `json:"tenure"`
	}
	body := map[string]any{"member": member, "ttl_ms": ttl.Milliseconds()}
	if err := call("POST", tenure.path+"/members", body, &joined, time.Second/2); err != nil {
		return nil, err
	}
	tenure.ID = joined.Tenure
	go tenure.beat()
	return tenure, nil
}

// Verdict is "held": work, "uncertain": pause, or "lost": stop for good. No network access.
func (tenure *Tenure) Verdict() (verdict, reason string) {
	tenure.mutex.Lock()
	defer tenure.mutex.Unlock()
	age := elapsed(tenure.confirmed)
	switch {
	case tenure.ended != "":
		return "lost", tenure.ended
	case age >= tenure.ttl:
		return "lost", "not confirmed in time"
	case age >= tenure.ttl-tenure.ttl/12:
		return "uncertain", ""
	}
	return "held", ""
}

func (tenure *Tenure) beat() {
	defer close(tenure.done)
	timeout := tenure.ttl / 6
	if timeout > time.Second/2 {
		timeout = time.Second / 2
	}
	pause := tenure.ttl / 3
	for {
		select {
		case <-tenure.stop:
			return
		case <-time.After(pause):
		}
		sent := time.Now()
		err := call("PUT", tenure.path+"/tenures/"+tenure.ID+"/beat", nil, nil, timeout)
		var refused *Refused
		if errors.As(err, &refused) && refused.Code == "tenure_ended" {
			tenure.mutex.Lock()
			tenure.ended = refused.Reason
			tenure.mutex.Unlock()
			return
		}
		if err != nil {
			pause = tenure.ttl / 12 // No reply is not a refusal: retry sooner.
			continue
		}
		// A reply that arrives after the ttl does not revive the tenure.
		if verdict, _ := tenure.Verdict(); verdict == "lost" {
			return
		}
		tenure.mutex.Lock()
		tenure.confirmed, pause = sent, tenure.ttl/3
		tenure.mutex.Unlock()
	}
}

// Claim claims the key for this member, also from a previous owner.
func (tenure *Tenure) Claim(registry, key string) error {
	path := tenure.path + "/registries/" + registry + "/claims/" + key
	return call("PUT", path, map[string]any{"tenure": tenure.ID}, nil, time.Second/2)
}

// Acquire returns the fencing token if the lease was granted, and 0 while it is held by another member.
func (tenure *Tenure) Acquire(lease string) (int64, error) {
	var got struct {
		Token int64 `json:"token"`
	}
	body := map[string]any{"tenure": tenure.ID}
	err := call("POST", tenure.path+"/leases/"+lease+"/acquire", body, &got, time.Second/2)
	var refused *Refused
	if errors.As(err, &refused) && (refused.Code == "lease_held" || refused.Code == "unsettled") {
		return 0, nil
	}
	return got.Token, err
}

// Release releases the lease. Stop the work first.
func (tenure *Tenure) Release(lease string, token int64) error {
	body := map[string]any{"tenure": tenure.ID, "token": token}
	return call("POST", tenure.path+"/leases/"+lease+"/release", body, nil, time.Second/2)
}

// Leave ends the tenure and releases everything it holds.
func (tenure *Tenure) Leave() error {
	close(tenure.stop)
	<-tenure.done
	return call("DELETE", tenure.path+"/tenures/"+tenure.ID, nil, nil, time.Second/2)
}

func getenv(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func run(group, member string) (int, error) {
	if os.Getenv("TENURE_URL") != "" {
		fmt.Fprintln(os.Stderr, "TENURE_URL is an old name: use TENURE_STORE")
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(getenv("TENURE_TTL", "30s"), "s"), 64)
	if err != nil {
		return 1, err
	}
	tenure, err := Join(group, member, time.Duration(seconds*float64(time.Second)))
	if err != nil {
		return 1, err
	}
	fmt.Println("joined", tenure.ID)
	if err := tenure.Claim("devices", "device-of-"+member); err != nil {
		return 1, err
	}
	var fence int64
	before := ""
	for {
		select {
		case <-stop:
			if fence != 0 {
				if err := tenure.Release("report", fence); err != nil {
					return 1, err
				}
			}
			if err := tenure.Leave(); err != nil {
				return 1, err
			}
			fmt.Println("left")
			return 0, nil
		case <-time.After(100 * time.Millisecond):
		}
		verdict, reason := tenure.Verdict()
		switch {
		case verdict == "lost":
			fmt.Println("lost", reason)
			return 3, nil
		case verdict == "uncertain" && before != verdict:
			fmt.Println("paused")
		case verdict == "held" && fence == 0:
			var refused *Refused
			// Without a reply it may be granted: a repeated acquire under the same tenure returns it.
			if fence, err = tenure.Acquire("report"); errors.As(err, &refused) {
				return 1, err
			}
		case verdict == "held":
			// Pass the token to the storage that is written to, so that it can reject late writers.
			fmt.Println("work", fence)
		}
		before = verdict
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: client GROUP MEMBER")
		os.Exit(2)
	}
	code, err := run(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
	}
	os.Exit(code)
}
