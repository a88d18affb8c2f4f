package tenure

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// balancer is a TCP proxy in front of the daemon that drops idle connections without a word: it resets them when they are
// used again.
type balancer struct {
	net.Listener
	mutex sync.Mutex
	open  map[net.Conn]*bool // Whether it was dropped.
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{Listener: listener, open: map[net.Conn]*bool{}}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go b.serve(client)
		}
	}()
	return b
}

func (b *balancer) serve(client net.Conn) {
	defer client.Close()
	daemon, err := net.Dial("tcp", strings.TrimPrefix(os.Getenv("TENURE_STORE"), "http://"))
	if err != nil {
		return
	}
	defer daemon.Close()
	dropped := new(bool)
	b.mutex.Lock()
	b.open[client] = dropped
	b.mutex.Unlock()
	go func() { _, _ = io.Copy(client, daemon) }()
	for buffer := make([]byte, 4096); ; {
		n, err := client.Read(buffer)
		b.mutex.Lock()
		gone := *dropped
		b.mutex.Unlock()
		if gone {
			_ = client.(*net.TCPConn).SetLinger(0)
		}
		if err != nil || gone {
			return
		}
		if _, err := daemon.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// drop drops all connections of now, and returns how many.
func (b *balancer) drop() int {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, dropped := range b.open {
		*dropped = true
	}
	return len(b.open)
}

func TestDeadIdleConnectionsCostNoAttempt(t *testing.T) {
	balancer := newBalancer(t)
	client, err := NewClient(Options{URL: "http://" + balancer.Addr().String(),
		Transport: &http.Transport{MaxIdleConnsPerHost: 40}})
	if err != nil {
		t.Fatal(err)
	}
	m := join(t, client, "a", JoinOptions{})
	var all sync.WaitGroup
	for n := 0; n < 40; n++ {
		all.Add(1)
		go func() {
			defer all.Done()
			_, _ = client.Events(context.Background(), t.Name(), "", 0)
		}()
	}
	all.Wait()
	if balancer.drop() < 3 {
		t.Fatal("too few connections to be a pool")
	}
	for n := 0; n < 3; n++ {
		request := m.call(http.MethodPut, changes, "registries", "r", "claims", "k")
		request.body, request.answer, request.tries = map[string]any{"tenure": m.Tenure()}, &claimAnswer{}, 1
		if err := client.do(context.Background(), request); err != nil {
			t.Fatal(n, err)
		}
	}
}

func TestWaitsUseNoConnectionOfBeatsAndReleases(t *testing.T) {
	client, err := NewClient(Options{Transport: &http.Transport{MaxConnsPerHost: 1}})
	if err != nil {
		t.Fatal(err)
	}
	holder, m := join(t, newClient(t), "holder", JoinOptions{}), join(t, client, "a", JoinOptions{TTL: time.Second})
	acquire(t, holder, "l")
	mine := acquire(t, m, "mine")
	asked := make(chan error)
	go func() {
		_, err := m.Acquire(context.Background(), "l", AcquireOptions{Wait: 3 * time.Second})
		asked <- err
	}()
	until(t, "it waits", func() bool { return waiting(t, "l") == 1 })
	if err := mine.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := <-asked; Code(err) != CodeLeaseHeld || m.Verdict() != Held {
		t.Fatal("the beats waited for the acquire: ", err, m.Verdict())
	}
}

// waiting is the number of waiters of a lease.
func waiting(t *testing.T, lease string) int {
	t.Helper()
	state, err := get[struct {
		Waiting int `json:"waiting"`
	}](context.Background(), newClient(t), groupCall(http.MethodGet, reads, t.Name(), "leases", lease))
	if err != nil || state == nil {
		return 0
	}
	return state.Waiting
}
