// Package tenure is a client of the Tenure daemon: who is alive, and who owns what.
//
// A process joins a group and sends heartbeats in the background. Under its tenure it claims keys, acquires leases
// (distributed locks and leader election, with fencing tokens), and attaches sessions. Its verdict says without a call
// whether it may work: Held, Uncertain or Lost.
//
// # Errors
//
// Calls fail with an *Error. Its Code is stable; its Outcome says whether the call may have taken effect. A call is
// repeated up to three times while no answer arrives, which is safe for all calls of this package, and carries a time
// limit, so that an attempt that was given up does not take effect later.
//
// # Rules for a holder
//
// Ask Lease.Verdict before each step of the work, and send Lease.Token with every write, so that storage can reject late
// writers. The channels of Lost and Context are closed a moment later than the verdict turns, if the process or the
// machine was paused.
package tenure
