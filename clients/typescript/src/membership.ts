import { jitter, type Stopwatch, sleep } from "./clock.js";
import { orNull, TenureError, tenureEnded } from "./error.js";
import { type Http, path } from "./http.js";
import { type AcquireOptions, type Lease, Leases } from "./lease.js";
import type { Attached, Claimed, Joined, Member, Session, SessionData } from "./types.js";

/** What a process may assume about what it holds. `held`: work. `uncertain`: pause. `lost`: stop. */
export type Verdict = "held" | "uncertain" | "lost";

/** Why a tenure ended. Only after `lapsed` and `unknown` does a membership join again. */
export type EndReason = "left" | "lapsed" | "superseded" | "expelled" | "unknown" | (string & {});

export type MembershipEvent =
  | { type: "ended"; tenure: string; reason: EndReason }
  | { type: "rejoined"; tenure: string }
  | { type: "lease_lost"; lease: Lease };

interface Connection {
  session: string;
  connection: string;
  /** That of the newest attach. */
  epoch: number;
}

export interface JoinOptions {
  /** How long the daemon waits for a heartbeat before the tenure lapses; its default is 30,000. */
  ttlMs?: number;
  labels?: Record<string, string>;
  /** Whether to join again after `lapsed` and `unknown`; true by default. */
  rejoin?: boolean;
  onEvent?: (event: MembershipEvent) => void;
}

/** A process as a member of a group: it beats until `leave()`, and joins again when its tenure lapsed. */
export class Membership {
  readonly group: string;
  readonly member: string;
  readonly #http: Http;
  readonly #options: JoinOptions;
  #running: Promise<EndReason> = Promise.resolve("left");
  readonly #stop = new AbortController();
  readonly #leases: Leases;
  /** The keys claimed, by registry: they are claimed again under a new tenure. */
  readonly #claims = new Map<string, Set<string>>();
  /** The attached connections: they are attached again under a new tenure. */
  readonly #connections = new Map<string, Connection>();
  #tenure = "";
  #ttl = 0;
  #confirmed: Stopwatch;
  #ended: EndReason | undefined;
  #labels: Record<string, string> | undefined;
  #mayHaveJoined = false;
  #reassert = false;
  #lostTimer: ReturnType<typeof setTimeout> | undefined;
  #wake = new AbortController();

  private constructor(http: Http, group: string, member: string, options: JoinOptions) {
    this.group = group;
    this.member = member;
    this.#http = http;
    this.#options = options;
    this.#labels = options.labels;
    this.#confirmed = http.stopwatch();
    const tenure = () => this.#tenure;
    this.#leases = new Leases({
      http,
      group,
      tenure,
      verdict: () => this.verdict(),
      act: (make) => this.#act(make),
      leaseLost: (lease) => this.#emit({ type: "lease_lost", lease }),
    });
  }

  static async join(http: Http, group: string, member: string, options: JoinOptions): Promise<Membership> {
    const membership = new Membership(http, group, member, options);
    await membership.#join();
    membership.#running = membership.#beat();
    return membership;
  }

  /** Resolves when the membership is over: the process left, another one took over, or it may not join again. */
  get stopped(): Promise<EndReason> {
    return this.#running;
  }

  /** The current tenure; another one after the membership joined again. */
  get tenure(): string {
    return this.#tenure;
  }

  /** Why the current tenure has ended, if it has. */
  get ended(): EndReason | undefined {
    return this.#ended;
  }

  /** Computed from the clock now, without I/O. Counts from when the last confirmed beat was sent. */
  verdict(): Verdict {
    const age = this.#confirmed.elapsed();
    if (this.#ended !== undefined || age >= this.#ttl) return "lost";
    return age < this.#ttl - this.#ttl / 12 ? "held" : "uncertain";
  }

  /** Claims a key, also from another owner unless `ifAbsent`; `claim_held` if that one is alive. */
  async claim(registry: string, key: string, options: { ifAbsent?: boolean } = {}): Promise<Claimed> {
    const url = path("groups", this.group, "registries", registry, "claims", key);
    const claimed = await this.#change<Claimed>("PUT", url, (tenure) => ({
      tenure,
      ...(options.ifAbsent ? { if_absent: true } : {}),
    }));
    const keys = this.#claims.get(registry) ?? new Set();
    this.#claims.set(registry, keys.add(key));
    return claimed;
  }

  async releaseClaim(registry: string, key: string): Promise<void> {
    this.#claims.get(registry)?.delete(key);
    const url = path("groups", this.group, "registries", registry, "claims", key);
    await this.#act((tenure) =>
      this.#leases.changing(() => this.#http.json<void>({ method: "DELETE", path: url, query: { tenure } })),
    ).catch((error: unknown) => {
      // Released by an earlier attempt, and claimed by another member since.
      if (!(error instanceof TenureError && error.code === "not_owner" && error.repeated)) throw error;
    });
  }

  /**
   * Acquires a lease; `lease_held` if another member has it, `unsettled` while the store waits after a loss. The holder is the
   * membership: tasks of one process that acquire the same lease get the same `Lease`.
   */
  acquire(lease: string, options: AcquireOptions = {}): Promise<Lease> {
    return this.#leases.acquire(lease, options);
  }

  /** Attaches a connection to a session, which is created or resumed. */
  async attach(
    session: string,
    connection: string,
    options: { data?: SessionData; alias?: string; graceMs?: number; resumeOnly?: boolean } = {},
  ): Promise<Attached> {
    const { data, alias, graceMs, resumeOnly } = options;
    const attached = await this.#change<Attached>("PUT", path("groups", this.group, "sessions", session), (tenure) => ({
      tenure,
      connection,
      ...(data === undefined ? {} : { data }),
      ...(alias === undefined ? {} : { alias }),
      ...(graceMs === undefined ? {} : { grace_ms: graceMs }),
      ...(resumeOnly ? { resume_only: true } : {}),
    }));
    this.#connections.set(`${session} ${connection}`, { session, connection, epoch: attached.epoch });
    return attached;
  }

  /** Detaches a connection; a newer attach of it, by another member, stays. */
  async detach(session: string, connection: string): Promise<void> {
    const epoch = this.#connections.get(`${session} ${connection}`)?.epoch;
    this.#connections.delete(`${session} ${connection}`);
    const url = path("groups", this.group, "sessions", session, "connections", connection);
    await this.#act((tenure) =>
      this.#leases.changing(() => this.#http.json<void>({ method: "DELETE", path: url, query: { tenure, epoch } })),
    );
  }

  /** Changes the data of a session: a field replaces the old value, `null` removes it. */
  patchSession(session: string, data: SessionData): Promise<Session> {
    return this.#change("PATCH", path("groups", this.group, "sessions", session), (tenure) => ({ tenure, data }));
  }

  /** Replaces the labels, also for later joins. */
  async setLabels(labels: Record<string, string>): Promise<void> {
    await this.#act((tenure) =>
      this.#http.json<unknown>({ method: "PUT", path: this.#tenurePath(tenure, "labels"), body: { labels } }),
    );
    this.#labels = labels;
  }

  /** Ends the tenure and releases all it holds. Stop the work first. */
  async leave(): Promise<void> {
    const over = this.#ended !== undefined && this.#ended !== "lapsed" && this.#ended !== "unknown";
    this.#ended ??= "left";
    this.#leases.loseAll(false);
    this.#stop.abort();
    this.#wake.abort();
    await this.#running;
    clearTimeout(this.#lostTimer);
    if (!over) await this.#http.json<void>({ method: "DELETE", path: this.#tenurePath(this.#tenure) });
  }

  #tenurePath(tenure: string, ...rest: string[]): string {
    return path("groups", this.group, "tenures", tenure, ...rest);
  }

  #change<T>(method: "PUT" | "PATCH", url: string, body: (tenure: string) => unknown): Promise<T> {
    return this.#act((tenure) =>
      this.#leases.changing(() => this.#http.json<T>({ method, path: url, body: body(tenure) })),
    );
  }

  /** Makes an act under the current tenure, unless that is lost. */
  async #act<T>(make: (tenure: string) => Promise<T>): Promise<T> {
    const tenure = this.#tenure;
    if (this.verdict() === "lost") throw tenureEnded(tenure, this.#ended);
    try {
      return await make(tenure);
    } catch (error) {
      if (error instanceof TenureError && error.code === "tenure_ended") this.#end(tenure, error.reason);
      throw error;
    }
  }

  async #join(): Promise<void> {
    const body = {
      member: this.member,
      ...(this.#options.ttlMs === undefined ? {} : { ttl_ms: this.#options.ttlMs }),
      ...(this.#labels === undefined ? {} : { labels: this.#labels }),
    };
    const url = path("groups", this.group, "members");
    // A late join would supersede the one that was repeated.
    await this.#http.learn();
    const { body: joined, sent } = await this.#http.call<Joined>({ method: "POST", path: url, body });
    this.#leases.begin();
    this.#tenure = joined.tenure;
    this.#ttl = joined.ttl_ms;
    this.#ended = this.#stop.signal.aborted ? "left" : undefined;
    this.#mayHaveJoined = false;
    this.#reassert = this.#claims.size + this.#connections.size > 0;
    this.#confirm(sent);
  }

  /** Beats, and joins again, until the membership is over. */
  async #beat(): Promise<EndReason> {
    let pause = jitter(this.#ttl / 3, 1 / 3);
    for (;;) {
      this.#wake = new AbortController();
      await sleep(pause, this.#wake.signal);
      if (this.#stop.signal.aborted) return "left";
      try {
        const over = this.#ended === undefined ? await this.#beatOnce() : (this.#over() ?? (await this.#joinAgain()));
        if (over !== undefined) return over;
        pause = this.#ended === undefined ? this.#untilNext() : 0;
      } catch {
        // No answer is not a refusal. Try again sooner.
        pause = jitter(this.#ttl / 12, 1 / 4);
      }
    }
  }

  #untilNext(): number {
    return Math.max(0, jitter(this.#ttl / 3, 0.1) - this.#confirmed.elapsed());
  }

  async #beatOnce(): Promise<EndReason | undefined> {
    const tenure = this.#tenure;
    const snapshot = this.#leases.sending();
    const body = snapshot.named ? { revision: snapshot.named } : undefined;
    const timeoutMs = Math.min(500, this.#ttl / 6);
    const beat = {
      method: "PUT" as const,
      path: this.#tenurePath(tenure, "beat"),
      body,
      timeoutMs,
      attempts: 1,
      isBeat: true,
    };
    try {
      const { body: renewed, sent } = await this.#http.call<{ expires_in_ms: number; revision?: number | null }>(beat);
      // Another server may answer 200 as well.
      if (renewed?.expires_in_ms === undefined)
        throw new TenureError(0, { detail: "the beat was not answered by a daemon" });
      if (this.#ended !== undefined) return this.#over();
      // Compared before it is confirmed: what differs is doubted from this answer on.
      if (this.#leases.compare(snapshot, renewed.revision ?? 0)) this.#reassert = true;
      this.#confirm(sent);
    } catch (error) {
      if (!(error instanceof TenureError && error.code === "tenure_ended")) throw error;
      this.#end(tenure, error.reason);
      return this.#over();
    }
    void this.#holdAgain();
    return undefined;
  }

  /** Whether the end is final: the reason, if so. */
  #over(): EndReason | undefined {
    const mayRejoin = this.#ended === "lapsed" || this.#ended === "unknown";
    return mayRejoin && this.#options.rejoin !== false ? undefined : this.#ended;
  }

  /** Joins again, unless another process of this name has taken over. */
  async #joinAgain(): Promise<EndReason | undefined> {
    if (!this.#mayHaveJoined) {
      const call = this.#http.json<Member>({ path: path("groups", this.group, "members", this.member) });
      const found = await orNull(call);
      if (found?.alive && found.tenure !== this.#tenure) {
        this.#ended = "superseded";
        return this.#ended;
      }
    }
    if (this.#stop.signal.aborted) return "left";
    try {
      await this.#join();
    } catch (error) {
      this.#mayHaveJoined ||= error instanceof TenureError && error.outcome === "unknown";
      throw error;
    }
    if (this.#stop.signal.aborted) return "left";
    this.#emit({ type: "rejoined", tenure: this.#tenure });
    void this.#holdAgain();
    return undefined;
  }

  /** Claims and attaches again what other members have not taken over. Repeated after the next beat if it fails. */
  async #holdAgain(): Promise<void> {
    if (!this.#reassert) return;
    this.#reassert = false;
    try {
      for (const [registry, keys] of this.#claims) {
        const all = [...keys];
        for (let at = 0; at < all.length; at += 200) await this.#claimMany(registry, all.slice(at, at + 200));
      }
      for (const [key, { session, connection }] of [...this.#connections]) {
        if (this.#connections.has(key)) await this.#attachAgain(key, session, connection);
      }
    } catch {
      this.#reassert = true;
    }
  }

  async #claimMany(registry: string, keys: string[]): Promise<void> {
    const url = path("groups", this.group, "registries", registry, "claims");
    const call = (tenure: string) =>
      this.#leases.changing(() =>
        this.#http.json<{ results: { key: string; outcome: string }[] }>({
          method: "POST",
          path: url,
          body: { tenure, keys, if_absent: true },
        }),
      );
    for (const { key, outcome } of (await this.#act(call)).results) {
      if (outcome === "held") this.#claims.get(registry)?.delete(key);
    }
  }

  async #attachAgain(key: string, session: string, connection: string): Promise<void> {
    try {
      await this.attach(session, connection, { resumeOnly: true });
    } catch (error) {
      const isGone = error instanceof TenureError && (error.notFound || error.status === 409);
      if (!isGone) throw error;
      this.#connections.delete(key);
    }
  }

  #confirm(sent: Stopwatch): void {
    // Answers can come out of order after a pause: the latest beat counts.
    if (this.#confirmed.elapsed() > sent.elapsed()) this.#confirmed = sent;
    this.#watch();
  }

  /** Reports the loss of the leases when a whole ttl passes without a confirmation. */
  #watch(): void {
    clearTimeout(this.#lostTimer);
    if (this.#ended !== undefined) return;
    if (this.verdict() === "lost") this.#leases.loseAll(true);
    else this.#lostTimer = setTimeout(() => this.#watch(), Math.max(1, this.#ttl - this.#confirmed.elapsed()));
  }

  #end(tenure: string, reason: EndReason = "unknown"): void {
    if (tenure !== this.#tenure || this.#ended !== undefined) return;
    this.#ended = reason;
    clearTimeout(this.#lostTimer);
    this.#emit({ type: "ended", tenure, reason });
    this.#leases.loseAll(true);
    this.#wake.abort();
  }

  #emit(event: MembershipEvent): void {
    try {
      this.#options.onEvent?.(event);
    } catch (error) {
      // An error of the program must not end the beats; it is reported as any uncaught one.
      queueMicrotask(() => {
        throw error;
      });
    }
  }
}
