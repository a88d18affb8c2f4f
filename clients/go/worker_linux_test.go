package tenure

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestFrozenWorkerStopsBeforeItWrites stops a holder past its ttl. Its successor starts; when the first runs on, it
// writes nothing more. The file of fencing tokens is the witness.
func TestFrozenWorkerStopsBeforeItWrites(t *testing.T) {
	directory := t.TempDir()
	binary, file := filepath.Join(directory, "worker"), filepath.Join(directory, "tokens")
	if out, err := exec.Command("go", "build", "-o", binary, "./examples/worker").CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	first := startWorker(t, binary, "a", file)
	until(t, "the first works", func() bool { return len(tokens(t, file)) > 0 })
	signalWorker(t, first, syscall.SIGSTOP)
	before := tokens(t, file)
	second := startWorker(t, binary, "b", file)
	until(t, "the second works", func() bool { return len(tokens(t, file)) > len(before)+2 })
	signalWorker(t, first, syscall.SIGCONT)
	err := first.Wait()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 3 {
		t.Fatal("the first must exit with code 3: ", err)
	}
	seen := len(tokens(t, file))
	until(t, "the second works on", func() bool { return len(tokens(t, file)) > seen+2 })
	signalWorker(t, second, syscall.SIGTERM)
	if err := second.Wait(); err != nil {
		t.Fatal(err)
	}
	all := tokens(t, file)
	if all[0] >= all[len(all)-1] {
		t.Fatal("the token of the successor must be higher: ", all)
	}
	for place := 1; place < len(all); place++ {
		if all[place] < all[place-1] {
			t.Fatal("the first wrote after its successor: ", all)
		}
	}
}

func startWorker(t *testing.T, binary, member, file string) *exec.Cmd {
	t.Helper()
	worker := exec.Command(binary, t.Name(), member, "l", file)
	worker.Stderr = os.Stderr
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = worker.Process.Kill() })
	return worker
}

func signalWorker(t *testing.T, worker *exec.Cmd, signal syscall.Signal) {
	t.Helper()
	if err := worker.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

func tokens(t *testing.T, file string) []int64 {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var all []int64
	for _, line := range strings.Fields(string(content)) {
		token, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, token)
	}
	return all
}
