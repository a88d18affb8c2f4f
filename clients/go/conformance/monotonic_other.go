//go:build !linux

package main

import "time"

// monotonic reads the wall clock: the standard library does not show the monotonic one.
func monotonic() int64 { return time.Now().UnixNano() }
