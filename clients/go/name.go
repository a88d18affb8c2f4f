package tenure

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"time"
)

const maxName = 200

var (
	started  = time.Now().UnixMicro() * 1000
	unusable = regexp.MustCompile(`[^A-Za-z0-9._:-]`)
)

// generatedName has the host, the start of the process and a random part, like the names that the Rust library generates.
func generatedName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	tail := fmt.Sprintf("-%010d-%s", started, random(4))
	host = unusable.ReplaceAllString(host, "-")
	if len(host) > maxName-len(tail) {
		host = host[:maxName-len(tail)]
	}
	return host + tail
}

// random is a number of random bytes, in hexadecimal.
func random(bytes int) string {
	made := make([]byte, bytes)
	if _, err := rand.Read(made); err != nil {
		panic(err) // A system without random numbers.
	}
	return hex.EncodeToString(made)
}
