import { type Clock, jitter, Stopwatch, sleep } from "./clock.js";
import { TenureError } from "./error.js";
import type { Page, Problem } from "./types.js";

/** How to reach a daemon. */
export interface ClientOptions {
  /** Sent as `Authorization: Bearer …`. */
  token?: string;
  /** Used instead of the global `fetch`. */
  fetch?: typeof fetch;
  /** A clock in milliseconds that counts suspend, beside the two that every platform has; see the README. */
  clock?: Clock;
}

/** One call, as a value. */
export interface Call {
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
  /** Time-out of an attempt; 1,000 by default. */
  timeoutMs?: number;
  /** 3 by default. */
  attempts?: number;
  /** How long the daemon may wait before it answers, beside the time-out. Sent as `wait_ms` in the body. */
  waitMs?: number | undefined;
  /** A beat may take effect at any time, so it carries no `Tenure-Not-After`. */
  isBeat?: boolean;
  signal?: AbortSignal | undefined;
}

export interface Answer<T> {
  body: T;
  /** Runs since just before the answered attempt was sent. */
  sent: Stopwatch;
}

const ATTEMPTS = 3;
const ATTEMPT_MS = 1_000;
const MAX_RETRY_AFTER_MS = 1_000;

/** A path of encoded segments. */
export const path = (...segments: string[]): string => `/v1/${segments.map(encodeURIComponent).join("/")}`;

/** Makes calls: time-outs, retries, `Tenure-Not-After` and errors. */
export class Http {
  readonly #base: string;
  readonly #options: ClientOptions;
  /** The store's time in the newest answer, and the local time of that answer. */
  #storeTime: { at: number; arrived: number } | undefined;

  constructor(base: string, options: ClientOptions) {
    this.#base = base.replace(/\/+$/, "");
    this.#options = options;
  }

  stopwatch(): Stopwatch {
    return new Stopwatch(this.#options.clock);
  }

  /** The answered body of a call. */
  async json<T>(call: Call): Promise<T> {
    return (await this.call<T>(call)).body;
  }

  /** Asks for the store's time unless it is known. A call without a limit may take effect after its repetition. */
  async learn(): Promise<void> {
    if (!this.#storeTime) await this.json({ path: path("now") });
  }

  /** All pages of a list. */
  async *pages<T extends Page>(call: Call): AsyncGenerator<T> {
    let after: string | undefined;
    do {
      const page = await this.json<T>({ ...call, query: { limit: 1_000, ...call.query, after } });
      yield page;
      after = page.next ?? undefined;
    } while (after !== undefined);
  }

  /** Makes a call; repeats it when that makes sense. Every call that goes through here can be repeated. */
  async call<T>(call: Call): Promise<Answer<T>> {
    const started = this.stopwatch();
    let repeated = false;
    for (let attempt = 1; ; attempt++) {
      const waitMs = call.waitMs && Math.max(0, Math.round(call.waitMs - started.elapsed()));
      const sent = this.stopwatch();
      try {
        return { body: await this.#attempt<T>(call, waitMs), sent };
      } catch (error) {
        if (!(error instanceof TenureError)) throw error;
        repeated ||= error.outcome === "unknown";
        if (attempt >= (call.attempts ?? ATTEMPTS) || call.signal?.aborted || !mayRepeat(error)) {
          // An earlier attempt may have done what this one did not.
          error.repeated = repeated;
          if (!repeated || !isIndecisive(error)) throw error;
          throw new TenureError(error.status, { ...error.problem, outcome: "unknown" }, { cause: error });
        }
        await sleep(Math.max(error.retryAfterMs ?? 0, jitter(ATTEMPT_MS / 8, 0.5)), call.signal);
      }
    }
  }

  async #attempt<T>(call: Call, waitMs: number | undefined): Promise<T> {
    const method = call.method ?? "GET";
    const timeoutMs = call.timeoutMs ?? ATTEMPT_MS;
    const body = waitMs ? { ...(call.body as object), wait_ms: waitMs } : call.body;
    const controller = new AbortController();
    const abort = () => controller.abort(call.signal?.reason);
    const timer = setTimeout(() => controller.abort(), timeoutMs + (waitMs ?? 0));
    call.signal?.addEventListener("abort", abort);
    if (call.signal?.aborted) abort();
    try {
      const response = await (this.#options.fetch ?? fetch)(this.#url(call), {
        method,
        headers: this.#headers(call, body !== undefined, timeoutMs),
        signal: controller.signal,
        // Another server would get the token.
        redirect: "manual",
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      this.#learn(response);
      return read<T>(response.status, await response.text());
    } catch (error) {
      throw error instanceof TenureError ? error : unreachable(method, call.path, error);
    } finally {
      clearTimeout(timer);
      call.signal?.removeEventListener("abort", abort);
    }
  }

  #url(call: Call): string {
    const given = Object.entries(call.query ?? {}).filter(([, value]) => value !== undefined);
    const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    return this.#base + call.path + (query && `?${query}`);
  }

  #headers(call: Call, hasBody: boolean, timeoutMs: number): Record<string, string> {
    const headers: Record<string, string> = { accept: "application/json" };
    if (hasBody) headers["content-type"] = "application/json";
    if (this.#options.token) headers.authorization = `Bearer ${this.#options.token}`;
    if (call.method && call.method !== "GET" && !call.isBeat && this.#storeTime) {
      // The store's clock is at least this far by the time at which this attempt is given up.
      const since = performance.now() - this.#storeTime.arrived;
      headers["tenure-not-after"] = new Date(this.#storeTime.at + since + timeoutMs).toISOString();
    }
    return headers;
  }

  #learn(response: Response): void {
    const at = Date.parse(response.headers.get("tenure-store-time") ?? "");
    if (!Number.isNaN(at)) this.#storeTime = { at, arrived: performance.now() };
  }
}

function read<T>(status: number, text: string): T {
  let body: unknown;
  try {
    body = text === "" ? undefined : JSON.parse(text);
  } catch (cause) {
    // A proxy in between may send its own pages.
    throw new TenureError(status, { detail: strange(status) }, { cause });
  }
  const isObject = typeof body === "object" && !Array.isArray(body);
  if (status >= 200 && status < 300 && (body === undefined || (isObject && body !== null))) return body as T;
  throw new TenureError(status, isObject && body ? (body as Partial<Problem>) : { detail: strange(status) });
}

const strange = (status: number) => `no daemon: an answer with the status ${status} that is not its JSON`;

function unreachable(method: string, path: string, cause: unknown): TenureError {
  const reason = cause instanceof Error ? (cause.cause as { code?: string } | undefined) : undefined;
  const outcome = method === "GET" || reason?.code === "ECONNREFUSED" ? "unchanged" : "unknown";
  const why = reason?.code ?? (cause instanceof Error ? cause.message : String(cause));
  return new TenureError(0, { detail: `${method} ${path}: no answer (${why})`, outcome }, { cause });
}

/** Whether the answer tells nothing about earlier attempts. */
function isIndecisive(error: TenureError): boolean {
  return error.code === "too_late" || error.status === 0 || error.status === 429 || error.status >= 500;
}

function mayRepeat(error: TenureError): boolean {
  if ((error.retryAfterMs ?? 0) > MAX_RETRY_AFTER_MS || error.code === "queue_full") return false;
  if (error.status === 500) return error.outcome === "unchanged";
  return isIndecisive(error) && error.status <= 504 && error.status !== 501;
}
