package tenure

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// instant is a reading of CLOCK_BOOTTIME in nanoseconds: a monotonic clock that counts suspend.
type instant int64

func readClock() (instant, error) {
	var at syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&at)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("tenure: CLOCK_BOOTTIME cannot be read: %w", errno)
	}
	return instant(at.Nano()), nil
}

// since is the time from earlier to i.
func (i instant) since(earlier instant) time.Duration {
	return time.Duration(i - earlier)
}
