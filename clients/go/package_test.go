package tenure

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// around is what the start of the README is written into. The work ends by a release.
const around = `package main

import (
	"context"
	"log"
	"time"

	tenure "example.invalid/tenure"
)

var (
	written int
	release func()
)

func write(token int64) {
	if written++; token > 0 && written == 3 {
		release()
	}
}

func main() {
	ctx := context.Background()
	START
	if err != nil || written != 3 {
		log.Fatal(written, err)
	}
}
`

// TestReadmeStartRunsInAnotherModule copies the module next to another one and requires it, as the README says.
func TestReadmeStartRunsInAnotherModule(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	start, module := block(t, readme, "go"), block(t, readme, "")
	// The name that the work needs is known after this line.
	acquired := regexp.MustCompile(`(?m)^lease, err := .*$`)
	if !acquired.MatchString(start) {
		t.Fatal("the start of the README acquires no lease: ", start)
	}
	start = acquired.ReplaceAllString(start, "$0\nrelease = func() { _ = lease.Release(ctx) }")
	directory := t.TempDir()
	copyModule(t, filepath.Join(directory, "tenure"))
	put(t, filepath.Join(directory, "go.mod"), "module start\n\ngo 1.19\n\n"+module)
	put(t, filepath.Join(directory, "main.go"), strings.Replace(around, "START", start, 1))
	run := exec.Command("go", "run", ".")
	run.Dir = directory
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
}

// block is the first code block of a language.
func block(t *testing.T, text []byte, language string) string {
	t.Helper()
	for _, found := range regexp.MustCompile("(?s)```([a-z]*)\n(.*?)```").FindAllSubmatch(text, -1) {
		if string(found[1]) == language {
			return string(found[2])
		}
	}
	t.Fatal("the README has no block of ", language)
	return ""
}

// copyModule copies what a user of the module gets.
func copyModule(t *testing.T, to string) {
	t.Helper()
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*.go", "go.mod"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(to, file), string(content))
		}
	}
}

func put(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
