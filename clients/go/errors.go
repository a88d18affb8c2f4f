package tenure

import (
	"errors"
	"fmt"
	"time"
)

// Outcome says whether a failed call changed anything.
type Outcome string

// The outcomes of a failed call.
const (
	Unchanged Outcome = "unchanged" // It certainly changed nothing.
	Unknown   Outcome = "unknown"   // It may have taken effect, or may until its time limit.
)

// Codes that programs often check. docs/api.md lists all of them.
const (
	CodeUnreachable = "unreachable"       // No daemon answered; Status is 0 or that of another server.
	CodeUnavailable = "store_unavailable" // The daemon answered that its store did not.
	CodeTooLate     = "too_late"          // The call arrived after its caller's time limit.
	CodeTenureEnded = "tenure_ended"
	CodeLeaseHeld   = "lease_held"
	CodeUnsettled   = "unsettled"
	CodeClaimHeld   = "claim_held"
	CodeNotHolder   = "not_holder"
	CodeNotOwner    = "not_owner"
	CodeNotFound    = "not_found"
	CodeInvalid     = "invalid"

	CodeSessionNotFound = "session_not_found"
)

// Error is an error of the daemon, or the failure to get its answer. Check Code, which is stable:
//
//	var failed *tenure.Error
//	if errors.As(err, &failed) && failed.Code == tenure.CodeLeaseHeld { … }
type Error struct {
	Code       string
	Status     int           // The HTTP status; 0 if no daemon answered.
	Detail     string        // For people.
	Reason     string        // With CodeTenureEnded: left, lapsed, superseded, expelled or unknown.
	RetryAfter time.Duration // When to retry; 0 if not given.
	Outcome    Outcome
	Holder     string // The other member of a conflict.
	Tenure     string // The tenure of that member.
	Cause      error  // The error of the network or the context, if any.
}

// Error describes the error.
func (e *Error) Error() string {
	text := "tenure: " + e.Code
	if e.Status != 0 {
		text = fmt.Sprintf("tenure: %d %s", e.Status, e.Code)
	}
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause, so that errors.Is finds context.Canceled.
func (e *Error) Unwrap() error { return e.Cause }

// Code returns the code of an error of this package, and "" for any other error.
func Code(err error) string {
	var failed *Error
	if errors.As(err, &failed) {
		return failed.Code
	}
	return ""
}

// passes reports whether the same call may succeed soon. All calls of this package are safe to repeat.
func (e *Error) passes() bool {
	switch {
	case e.Status < 300:
		return e.Code == CodeUnreachable
	case e.Status < 500:
		return e.Status == 429 || e.Code == CodeTooLate
	case e.Status == 500:
		return e.Outcome == Unchanged
	}
	return e.Code == CodeTooLate || e.Status >= 502 && e.Status <= 504
}

func invalid(detail string) *Error {
	return &Error{Code: CodeInvalid, Detail: detail, Outcome: Unchanged}
}

func ended(tenure, reason string) *Error {
	return &Error{Code: CodeTenureEnded, Detail: "the tenure " + tenure + " has ended", Reason: reason, Outcome: Unchanged}
}

// endless is the error of a list whose pages do not end.
func endless() *Error {
	return &Error{Code: CodeUnreachable, Detail: "the pages of the list do not end: it is not of a Tenure daemon", Outcome: Unchanged}
}
