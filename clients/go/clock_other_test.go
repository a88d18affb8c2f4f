//go:build !linux

package tenure

import "time"

func at(began instant, d time.Duration) instant { return instant{began.at.Add(d)} }
