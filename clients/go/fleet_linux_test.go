package tenure

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const fleetTTL = 6 * time.Second

// TestFleetOfTheExample kills, freezes, drains and adds nodes: a target never has an older token after a newer one, and no gap above
// its ttl and a second.
func TestFleetOfTheExample(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "fleet")
	if out, err := exec.Command("go", "build", "-o", binary, "./examples/fleet").CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	client, ctx := newClient(t), context.Background()
	for number := 0; number < 27; number++ {
		if err := client.PutTarget(ctx, t.Name(), fmt.Sprint("endpoint-", number), false); err != nil {
			t.Fatal(err)
		}
	}
	polls := &polls{}
	one, two := polls.start(t, binary, "one"), polls.start(t, binary, "two")
	three := polls.start(t, binary, "three")
	until(t, "each has targets", func() bool { return polls.of("one") > 0 && polls.of("two") > 0 && polls.of("three") > 0 })
	polls.all(t, 27)
	_ = three.Process.Kill()
	polls.all(t, 27, "one", "two")
	_ = two.Process.Signal(syscall.SIGTERM)
	if err := two.Wait(); err != nil {
		t.Fatal(err)
	}
	polls.all(t, 27, "one")
	polls.start(t, binary, "four")
	polls.gaps(t)
	// Frozen for longer than its ttl: its verdicts are over before it runs on.
	_ = one.Process.Signal(syscall.SIGSTOP)
	polls.all(t, 27, "four")
	_ = one.Process.Signal(syscall.SIGCONT)
	polls.all(t, 27)
	polls.tokens(t)
}

type polls struct {
	mutex sync.Mutex
	lines []pollLine
}

type pollLine struct {
	node, target string
	token, at    int64
}

func (p *polls) start(t *testing.T, binary, node string) *exec.Cmd {
	command := exec.Command(binary, t.Name(), node)
	command.Stdout, command.Stderr = &pollWriter{polls: p, node: node}, os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	return command
}

type pollWriter struct {
	polls *polls
	node  string
	rest  []byte
}

func (w *pollWriter) Write(text []byte) (int, error) {
	w.rest = append(w.rest, text...)
	w.polls.mutex.Lock()
	defer w.polls.mutex.Unlock()
	for {
		end := bytes.IndexByte(w.rest, '\n')
		if end < 0 {
			return len(text), nil
		}
		line := pollLine{node: w.node}
		if _, err := fmt.Sscanf(string(w.rest[:end]), "poll %s %d %d", &line.target, &line.token, &line.at); err == nil {
			w.polls.lines = append(w.polls.lines, line)
		}
		w.rest = w.rest[end+1:]
	}
}

func (p *polls) of(node string) int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	count := 0
	for _, line := range p.lines {
		if line.node == node {
			count++
		}
	}
	return count
}

// all waits until each target is polled again, by one of these nodes.
func (p *polls) all(t *testing.T, targets int, nodes ...string) {
	t.Helper()
	p.mutex.Lock()
	seen := len(p.lines)
	p.mutex.Unlock()
	until(t, "all targets are polled by "+strings.Join(nodes, " and "), func() bool {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		polled := map[string]bool{}
		for _, line := range p.lines[seen:] {
			if len(nodes) == 0 || strings.Contains(strings.Join(nodes, " "), line.node) {
				polled[line.target] = true
			}
		}
		return len(polled) == targets
	})
}

func (p *polls) gaps(t *testing.T) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	last, worst := map[string]int64{}, time.Duration(0)
	for _, line := range p.lines {
		if gap := time.Duration(line.at - last[line.target]); last[line.target] != 0 && gap > worst {
			worst = gap
		}
		last[line.target] = line.at
	}
	t.Log("worst gap", worst)
	if worst > fleetTTL+time.Second {
		t.Error("a gap of ", worst)
	}
}

// tokens checks the times that were read before the verdicts.
func (p *polls) tokens(t *testing.T) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, a := range p.lines {
		for _, b := range p.lines {
			if a.target == b.target && a.at < b.at && a.token > b.token {
				t.Fatal("an older token after a newer one: ", a, b)
			}
		}
	}
}
