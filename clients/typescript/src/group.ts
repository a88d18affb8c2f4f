import { sleep } from "./clock.js";
import { orNull, TenureError } from "./error.js";
import { type Call, type Http, isList, isText, path } from "./http.js";
import { type JoinOptions, Membership } from "./membership.js";
import type {
  Claim,
  EventsPage,
  LeaseState,
  Member,
  Page,
  Session,
  SessionData,
  Target,
  TenureEvent,
} from "./types.js";

export interface EventOptions {
  /** The id of the last event that is known; from the oldest kept without it. */
  after?: number | string;
  /** Only these types. */
  types?: string[];
}

/** An event, or the announcement that events before the next one are missing. */
export type Followed = { type: "event"; event: TenureEvent } | { type: "gap" };

/** How long the daemon waits for news; also bounds how long a broken connection goes unnoticed. */
const POLL_MS = 5_000;
const RETRY_MS = 250;

/** A group: reads that need no membership, and `join`. */
export class Group {
  readonly name: string;
  readonly #http: Http;

  constructor(http: Http, name: string) {
    this.#http = http;
    this.name = name;
  }

  /** Begins a tenure under a name that no other process uses (one is made if none is given), and beats until `leave()`. */
  join(member?: string, options: JoinOptions = {}): Promise<Membership> {
    return Membership.join(this.#http, this.name, member, options);
  }

  member(member: string): Promise<Member | null> {
    return orNull(this.#http.json({ path: this.#path("members", member), check: ({ tenure }) => isText(tenure) }));
  }

  async *members(): AsyncGenerator<Member> {
    const pages = this.#http.pages<Page & { members: Member[] }>({ path: this.#path("members") }, "members", "member");
    for await (const page of pages) yield* page.members;
  }

  /** The owner of a key; `null` if it is free. */
  owner(registry: string, key: string): Promise<Claim | null> {
    return orNull(
      this.#http.json({ path: this.#path("registries", registry, "claims", key), check: ({ owner }) => isText(owner) }),
    );
  }

  async *claims(registry: string, owner?: string): AsyncGenerator<Claim> {
    const call: Call = { path: this.#path("registries", registry, "claims"), query: { owner } };
    for await (const page of this.#http.pages<Page & { claims: Claim[] }>(call, "claims", "key")) yield* page.claims;
  }

  /** A lease; `null` if it is free. */
  lease(lease: string): Promise<LeaseState | null> {
    return orNull(this.#http.json({ path: this.#path("leases", lease), check: ({ lease }) => isText(lease) }));
  }

  async *leases(): AsyncGenerator<LeaseState> {
    const pages = this.#http.pages<Page & { leases: LeaseState[] }>({ path: this.#path("leases") }, "leases", "lease");
    for await (const page of pages) yield* page.leases;
  }

  /** The targets of a fleet, each with the node that it prefers and the one that has it. */
  async *targets(): AsyncGenerator<Target> {
    const call: Call = { path: this.#path("targets") };
    for await (const page of this.#http.pages<Page & { targets: Target[] }>(call, "targets", "target"))
      yield* page.targets;
  }

  /** Adds a target, or changes it. No node works on a paused one. */
  async putTarget(target: string, options: { paused?: boolean; weight?: number } = {}): Promise<void> {
    await this.#http.json<unknown>({ method: "PUT", path: this.#path("targets", target), body: options });
  }

  async removeTarget(target: string): Promise<void> {
    await orNull(this.#http.json<void>({ method: "DELETE", path: this.#path("targets", target) }));
  }

  session(session: string): Promise<Session | null> {
    return orNull(this.#http.json({ path: this.#path("sessions", session), check: isSession }));
  }

  /** The sessions, or those of a state, or those that have had no connection for at least `olderThanMs`. */
  async *sessions(options: { state?: Session["state"]; olderThanMs?: number } = {}): AsyncGenerator<Session> {
    const query = { state: options.state, older_than_ms: options.olderThanMs };
    const call: Call = { path: this.#path("sessions"), query };
    for await (const page of this.#http.pages<Page & { sessions: Session[] }>(call, "sessions", "session"))
      yield* page.sessions;
  }

  /** Changes the data of a session: a field replaces the old value, `null` removes it. */
  patchSession(session: string, data: SessionData): Promise<Session> {
    return this.#http.json({
      method: "PATCH",
      path: this.#path("sessions", session),
      body: { data },
      check: isSession,
    });
  }

  /** A page of events, oldest first. `waitMs` waits for news, at most 30,000. */
  events(options: EventOptions & { limit?: number; waitMs?: number; signal?: AbortSignal } = {}): Promise<EventsPage> {
    const { after, types, limit, waitMs, signal } = options;
    return this.#http.json({
      path: this.#path("events"),
      query: { after, types: types?.join(","), limit, wait_ms: waitMs },
      timeoutMs: 1_000 + (waitMs ?? 0),
      pool: waitMs ? "waits" : "calls",
      check: (body) => isList(body.events) && isText(body.next),
      signal,
    });
  }

  /** Follows the events, also over broken connections and restarts of the daemon, until the signal is aborted. */
  async *follow(options: EventOptions & { signal?: AbortSignal } = {}): AsyncGenerator<Followed> {
    let after = options.after;
    while (!options.signal?.aborted) {
      let page: EventsPage;
      try {
        page = await this.events({ ...options, ...(after === undefined ? {} : { after }), waitMs: POLL_MS });
      } catch (error) {
        if (options.signal?.aborted) return;
        const isFinal =
          error instanceof TenureError && error.status >= 400 && error.status < 500 && error.status !== 429;
        if (isFinal) throw error;
        await sleep(RETRY_MS, options.signal);
        continue;
      }
      if (page.missed) yield { type: "gap" };
      for (const event of page.events) yield { type: "event", event };
      after = page.next;
    }
  }

  #path(...rest: string[]): string {
    return path("groups", this.name, ...rest);
  }
}

const isSession = ({ session }: Record<string, unknown>) => isText(session);
