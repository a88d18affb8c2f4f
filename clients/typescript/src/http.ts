import { type Clock, jitter, Stopwatch, sleep } from "./clock.js";
import { TenureError } from "./error.js";
import { type Place, readPlace, readToken, variable } from "./place.js";
import { makeSend, type Pool, type Send } from "./send.js";
import { Turns } from "./turns.js";
import type { Page, Problem } from "./types.js";

/** How to reach a daemon. */
export interface ClientOptions {
  /** Sent as `Authorization: Bearer …`. By default the token in the file of `TENURE_TOKEN_FILE`, or `TENURE_TOKEN`. */
  token?: string;
  /** Makes all requests, instead of the modules of Node.js or the global `fetch`. */
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
  /** Ends the call. */
  signal?: AbortSignal | undefined;
  /** Ends the attempts of a call that runs on until its outcome is known. */
  caller?: AbortSignal | undefined;
  pool?: Pool;
  /** Whether a success has the fields of this call; if not, it is no daemon's. */
  check?: (body: Fields) => boolean;
}

type Fields = Record<string, unknown>;

export const isText = (value: unknown): value is string => typeof value === "string" && value !== "";
export const isCount = (value: unknown): value is number => typeof value === "number" && value >= 0 && value < 2 ** 53;
/** Whether a value is a list of objects with these texts. */
export const isList = (value: unknown, ...texts: string[]): boolean =>
  Array.isArray(value) && value.every((item) => item && texts.every((name) => isText(item[name])));

export interface Answer<T> {
  body: T;
  /** Runs since just before the answered attempt was sent. */
  sent: Stopwatch;
}

const ATTEMPTS = 3;
const ATTEMPT_MS = 1_000;
const MAX_RETRY_AFTER_MS = 1_000;
const MAX_PAGES = 10_000;

/** A path of encoded segments. */
export const path = (...segments: string[]): string => `/v1/${segments.map(encodeURIComponent).join("/")}`;

/** Makes calls: time-outs, retries, `Tenure-Not-After` and errors. */
export class Http {
  readonly #place: Place;
  readonly #options: ClientOptions;
  readonly #token: () => Promise<string | undefined>;
  #send: Promise<Send> | undefined;
  /** The joins of each name take turns: a late one would end the membership of the one after it. */
  readonly joins = new Turns();
  /** The store's time in the newest answer, and the local time of that answer. */
  #storeTime: { at: number; arrived: number } | undefined;

  constructor(url: string | undefined, options: ClientOptions) {
    this.#place = readPlace(url ?? variable("TENURE_STORE") ?? "http://127.0.0.1:7717");
    this.#token = readToken(options.token);
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

  /** All pages of a list of objects with these texts. */
  async *pages<T extends Page>(call: Call, list: keyof T & string, ...texts: string[]): AsyncGenerator<T> {
    let after: string | undefined;
    const check = (body: Fields) => isList(body[list], ...texts) && (body.next == null || isText(body.next));
    for (let pages = 0; pages < MAX_PAGES; pages++) {
      const page: T = await this.json<T>({ ...call, query: { limit: 1_000, ...call.query, after }, check });
      yield page;
      after = page.next ?? undefined;
      if (after === undefined) return;
    }
    throw new TenureError(0, { detail: "the pages of the list do not end: no daemon's", outcome: "unchanged" });
  }

  /** Makes a call; repeats it when that makes sense. Every call that goes through here can be repeated. */
  async call<T>(call: Call): Promise<Answer<T>> {
    const told = { repeated: false };
    for (let attempt = 1; ; attempt++) {
      const sent = this.stopwatch();
      try {
        return { body: await this.#attempt<T>(call, told), sent };
      } catch (error) {
        if (!(error instanceof TenureError)) throw error;
        const { repeated } = told;
        told.repeated ||= error.outcome === "unknown";
        const isOver = call.signal?.aborted || (call.caller?.aborted && !told.repeated);
        if (attempt >= (call.attempts ?? ATTEMPTS) || isOver || !mayRepeat(error)) {
          // An earlier attempt may have done what this one did not.
          error.repeated = told.repeated;
          if (!repeated || !isIndecisive(error)) throw error;
          throw new TenureError(error.status, { ...error.problem, outcome: "unknown" }, { cause: error });
        }
        await sleep(Math.max(error.retryAfterMs ?? 0, jitter(ATTEMPT_MS / 8, 0.5)), call.signal);
      }
    }
  }

  async #attempt<T>(call: Call, told: { repeated: boolean }): Promise<T> {
    const method = call.method ?? "GET";
    const timeoutMs = call.timeoutMs ?? ATTEMPT_MS;
    const body = call.waitMs ? { ...(call.body as object), wait_ms: Math.ceil(call.waitMs) } : call.body;
    const send = await this.#sender();
    const token = await this.#token();
    const controller = new AbortController();
    const abort = () => controller.abort(call.signal?.reason);
    const timer = setTimeout(() => controller.abort(), timeoutMs + (call.waitMs ?? 0));
    call.signal?.addEventListener("abort", abort);
    if (call.signal?.aborted) abort();
    try {
      const reply = await send({
        url: this.#url(call),
        method,
        headers: this.#headers(call, token, body !== undefined, timeoutMs),
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: controller.signal,
        pool: call.pool ?? "calls",
      });
      if (reply.resent && method !== "GET") told.repeated = true;
      this.#learn(reply.storeTime);
      return read<T>(reply.status, reply.text, call.check);
    } catch (error) {
      throw error instanceof TenureError ? error : unreachable(method, call.path, error);
    } finally {
      clearTimeout(timer);
      call.signal?.removeEventListener("abort", abort);
    }
  }

  async #sender(): Promise<Send> {
    this.#send ??= makeSend(this.#options.fetch, this.#place.files);
    try {
      return await this.#send;
    } catch (error) {
      this.#send = undefined; // The file may be there the next time.
      throw error;
    }
  }

  #url(call: Call): string {
    const given = Object.entries(call.query ?? {}).filter(([, value]) => value !== undefined);
    const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    return this.#place.base + call.path + (query && `?${query}`);
  }

  #headers(call: Call, token: string | undefined, hasBody: boolean, timeoutMs: number): Record<string, string> {
    const headers: Record<string, string> = { accept: "application/json" };
    if (hasBody) headers["content-type"] = "application/json";
    if (token) headers.authorization = `Bearer ${token}`;
    if (call.method && call.method !== "GET" && !call.isBeat && this.#storeTime) {
      // The store's clock is at least this far by the time at which this attempt is given up.
      const since = performance.now() - this.#storeTime.arrived;
      headers["tenure-not-after"] = new Date(this.#storeTime.at + since + timeoutMs).toISOString();
    }
    return headers;
  }

  #learn(storeTime: string | null | undefined): void {
    const at = Date.parse(storeTime ?? "");
    if (!Number.isNaN(at)) this.#storeTime = { at, arrived: performance.now() };
  }
}

function read<T>(status: number, text: string, check: Call["check"]): T {
  let body: unknown;
  try {
    body = text === "" ? undefined : JSON.parse(text);
  } catch (cause) {
    // A proxy in between may send its own pages.
    throw new TenureError(status, { detail: strange(status) }, { cause });
  }
  const fields = typeof body === "object" && body !== null && !Array.isArray(body) ? (body as Fields) : undefined;
  if (status >= 200 && status < 300) {
    if (check ? fields && check(fields) : fields || body === undefined) return body as T;
  } else if (fields && isProblem(fields)) {
    throw new TenureError(status, fields as Partial<Problem>);
  }
  throw new TenureError(status, { detail: strange(status) });
}

/** Whether the fields that this package acts on are what a daemon sends. */
function isProblem({ code, reason, outcome, retry_after_ms }: Fields): boolean {
  const outcomes: unknown[] = ["unchanged", "unknown"];
  const isKnown = outcome == null || outcomes.includes(outcome);
  return (
    isText(code) && (reason == null || isText(reason)) && isKnown && (retry_after_ms == null || isCount(retry_after_ms))
  );
}

const strange = (status: number) => `no daemon: an answer with the status ${status} that is not its JSON`;

function unreachable(method: string, path: string, cause: unknown): TenureError {
  const error = cause as { code?: unknown; cause?: { code?: unknown } } | undefined;
  // `fetch` has the code of the network in the cause of its own error.
  const code = error?.cause?.code ?? error?.code;
  const outcome = method === "GET" || code === "ECONNREFUSED" ? "unchanged" : "unknown";
  const why = isText(code) ? code : cause instanceof Error ? cause.message : String(cause);
  return new TenureError(0, { detail: `${method} ${path}: no answer (${why})`, outcome }, { cause });
}

/** Whether the answer tells nothing about earlier attempts. */
function isIndecisive(error: TenureError): boolean {
  return error.code === "too_late" || error.status < 300 || error.status === 429 || error.status >= 500;
}

const mayRepeat = (error: TenureError) => passes(error) && (error.retryAfterMs ?? 0) <= MAX_RETRY_AFTER_MS;

/** Whether the same call may succeed soon. */
export function passes(error: TenureError): boolean {
  if (error.code === "queue_full" || error.code === "invalid") return false;
  if (error.status === 500) return error.outcome === "unchanged";
  return isIndecisive(error) && error.status <= 504 && error.status !== 501;
}
