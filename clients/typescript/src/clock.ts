/** A further clock in milliseconds that counts suspend, if the platform has one. */
export type Clock = () => number;

const readings = (clock?: Clock): number[] => [performance.now(), Date.now(), ...(clock ? [clock()] : [])];

/**
 * The time since an instant, including suspend. The monotonic clock may stop during suspend, and the wall clock may be set
 * back, so the one that advanced most counts: an error ends a verdict early and never late.
 */
export class Stopwatch {
  readonly #start: number[];
  readonly #clock: Clock | undefined;

  constructor(clock?: Clock) {
    this.#clock = clock;
    this.#start = readings(clock);
  }

  elapsed(): number {
    return Math.max(...readings(this.#clock).map((now, i) => now - (this.#start[i] ?? now)));
  }
}

/** Waits, and returns early once the signal is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, clamp(ms));
    signal?.addEventListener("abort", done);
  });
}

/** A pause that a timer can have: it takes a longer one for none. */
export const clamp = (ms: number): number => Math.min(Math.max(1, ms), 2 ** 31 - 1);

/** A random duration between (1 - share) × ms and ms, so that clients do not act in step. */
export const jitter = (ms: number, share: number): number => ms * (1 - share * Math.random());
