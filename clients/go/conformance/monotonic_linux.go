package main

import (
	"syscall"
	"unsafe"
)

// monotonic reads CLOCK_MONOTONIC, which the runner reads too.
func monotonic() int64 {
	var at syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}
