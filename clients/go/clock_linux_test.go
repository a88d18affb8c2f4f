package tenure

import "time"

func at(began instant, d time.Duration) instant { return began + instant(d) }
