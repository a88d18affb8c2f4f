import type { Problem } from "./types.js";

/** Whether a failed call certainly changed nothing, or may have taken effect. */
export type Outcome = "unchanged" | "unknown";

/** A failed call. Programs check `code`; `message` is for people. */
export class TenureError extends Error {
  override readonly name = "TenureError";
  /** The code of the problem (`lease_held`, `tenure_ended`, …); `unreachable` without a usable answer. */
  readonly code: string;
  /** The HTTP status; 0 without an answer. */
  readonly status: number;
  readonly outcome: Outcome;
  /** With `tenure_ended`: why it ended. */
  readonly reason: string | undefined;
  /** When a retry makes sense. */
  readonly retryAfterMs: number | undefined;
  /** Whether an earlier attempt of the same call may have taken effect. */
  repeated = false;
  /** The answer of the daemon, with the fields of its code (`holder`, `owner`, `waited_ms`, …). */
  readonly problem: Partial<Problem>;

  constructor(status: number, problem: Partial<Problem>, options?: ErrorOptions) {
    super(problem.detail ?? problem.title ?? `the daemon answered with status ${status}`, options);
    this.status = status;
    this.code = problem.code ?? "unreachable";
    this.outcome = problem.outcome ?? (status >= 400 && status < 500 ? "unchanged" : "unknown");
    this.reason = problem.reason ?? undefined;
    this.retryAfterMs = problem.retry_after_ms ?? undefined;
    this.problem = problem;
  }

  /** Whether nothing was found under this name. */
  get notFound(): boolean {
    return this.code === "not_found" || this.code === "session_not_found";
  }
}

/** The error of a use that cannot work. */
export function invalid(detail: string): TenureError {
  return new TenureError(0, { code: "invalid", detail, outcome: "unchanged" });
}

/** The error of a call whose signal was aborted; its cause is the reason of the signal. */
export function gaveUp(signal: AbortSignal | undefined, outcome: Outcome): TenureError {
  return new TenureError(0, { detail: "the caller gave up", outcome }, { cause: signal?.reason });
}

/** The error of an act under a tenure that is over. */
export function tenureEnded(tenure: string, reason: string | undefined): TenureError {
  const why = reason ?? "not confirmed for a whole ttl";
  const detail = `the tenure ${tenure} is lost (${why}): stop the work; a membership that joins again says so`;
  return new TenureError(410, { code: "tenure_ended", detail, ...(reason ? { reason } : {}) });
}

/** `null` instead of an error for what does not exist. */
export async function orNull<T>(found: Promise<T>): Promise<T | null> {
  try {
    return await found;
  } catch (error) {
    if (error instanceof TenureError && error.notFound) return null;
    throw error;
  }
}
