package tenure

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestMain starts one daemon for all tests; each test has groups of its own.
func TestMain(m *testing.M) {
	binary := os.Getenv("TENURE_BIN")
	if binary == "" {
		fmt.Fprintln(os.Stderr, "set TENURE_BIN to the path of the tenure binary; the tests need a daemon")
		os.Exit(1)
	}
	os.Exit(withDaemon(binary, m.Run))
}

func withDaemon(binary string, run func() int) int {
	directory, err := os.MkdirTemp("", "tenure-go")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(directory)
	daemon := exec.Command(binary, "serve", "--store", "sqlite:"+directory+"/tenure.db", "--data-dir", directory,
		"--listen", "127.0.0.1:0")
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "TENURE_") {
			daemon.Env = append(daemon.Env, variable)
		}
	}
	out, err := daemon.StdoutPipe()
	if err != nil {
		panic(err)
	}
	if err := daemon.Start(); err != nil {
		panic(err)
	}
	defer func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	}()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		panic("the daemon did not start: run " + binary + " serve")
	}
	address := strings.TrimSpace(lines.Text())
	// A new store grants no lease until an operator says that none was held.
	answer, err := http.Post(address+"/v1/settle", "application/json", strings.NewReader("{}"))
	if err != nil || answer.StatusCode != http.StatusOK {
		panic(fmt.Sprint("the daemon cannot be settled: ", err, answer))
	}
	answer.Body.Close()
	os.Setenv("TENURE_STORE", address)
	os.Unsetenv("TENURE_TOKEN")
	return run()
}

func newClient(t *testing.T) *Client {
	t.Helper()
	client, err := NewClient(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// join joins the group of the test, and leaves at its end.
func join(t *testing.T, client *Client, member string, options JoinOptions) *Membership {
	t.Helper()
	m, err := client.Join(context.Background(), t.Name(), member, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Leave(context.Background()) })
	return m
}

func acquire(t *testing.T, m *Membership, lease string) *Lease {
	t.Helper()
	held, err := m.Acquire(context.Background(), lease, AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// until waits for a state of another process.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within a minute: " + what)
		}
	}
}

func closed(t *testing.T, what string, channel <-chan struct{}) {
	t.Helper()
	select {
	case <-channel:
	case <-time.After(60 * time.Second):
		t.Fatal("not within a minute: " + what)
	}
}
