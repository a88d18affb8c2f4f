import { type ClaimOptions, Claims } from "./claims.js";
import { clamp, jitter, type Stopwatch, sleep } from "./clock.js";
import { invalid, orNull, TenureError, tenureEnded } from "./error.js";
import { type Assignment, Fleet, type FleetOptions } from "./fleet.js";
import { Group } from "./group.js";
import type { Holder } from "./holder.js";
import { type Call, type Http, isCount, isText, passes, path } from "./http.js";
import { type AcquireOptions, type Lease, Leases } from "./lease.js";
import { generatedName } from "./place.js";
import { type AttachOptions, Sessions } from "./sessions.js";
import type { Attached, Claimed, ClaimResult, Joined, Member, Session, SessionData } from "./types.js";
import { findWrapper, notYet } from "./wrapper.js";

/** What a process may assume about what it holds. `held`: work. `uncertain`: pause. `lost`: stop. */
export type Verdict = "held" | "uncertain" | "lost";

/** Why a tenure ended. Only after `lapsed` and `unknown` does a membership join again. */
export type EndReason = "left" | "lapsed" | "superseded" | "expelled" | "unknown" | (string & {});

export type MembershipEvent =
  | { type: "ended"; tenure: string; reason: EndReason }
  | { type: "rejoined"; tenure: string }
  | { type: "lease_lost"; lease: Lease }
  /** Another member has the key. It is not claimed again. */
  | { type: "claim_lost"; registry: string; key: string; owner: string | undefined }
  /** A connection could not be attached again after a lapse; `gone`: the session was reaped. */
  | { type: "session_lost"; session: string; connection: string; reason: string };

export interface JoinOptions {
  /** How long the daemon waits for a heartbeat before the tenure lapses; its default is 30,000. */
  ttlMs?: number;
  labels?: Record<string, string>;
  /** Whether to join again after `lapsed` and `unknown`; true by default. */
  rejoin?: boolean;
  /** How long to wait for a daemon that cannot be reached or has no store. By default a join fails after three attempts. */
  patienceMs?: number;
  /** How often the claims are repeated, to find those that another member took; 60,000 by default. */
  checkClaimsMs?: number;
  /** Gives the join up; the member leaves if it had joined. */
  signal?: AbortSignal;
  onEvent?: (event: MembershipEvent) => void;
}

/** Of these the wrapper does not decide. */
export type InheritOptions = Pick<JoinOptions, "patienceMs" | "checkClaimsMs" | "signal" | "onEvent">;

/** A process as a member of a group: it beats until `leave()`, and joins again when its tenure lapsed. */
export class Membership {
  readonly group: string;
  readonly member: string;
  readonly #http: Http;
  readonly #options: JoinOptions;
  /** Whether another process began the tenure: it alone leaves, and joins again. */
  readonly #isInherited: boolean;
  #running: Promise<EndReason> = Promise.resolve("left");
  readonly #stop = new AbortController();
  readonly #leases: Leases;
  readonly #claims: Claims;
  readonly #sessions: Sessions;
  #tenure = "";
  #ttl = 0;
  #confirmed: Stopwatch;
  #ended: EndReason | undefined;
  #labels: Record<string, string> | undefined;
  #mayHaveJoined = false;
  #reclaim = false;
  #reattach = false;
  #isHolding = false;
  /** When the claims were repeated last. */
  #checked: Stopwatch;
  #lostTimer: ReturnType<typeof setTimeout> | undefined;
  #wake = new AbortController();

  private constructor(http: Http, group: string, member: string, options: JoinOptions, isInherited: boolean) {
    this.group = group;
    this.member = member;
    this.#http = http;
    this.#options = options;
    this.#isInherited = isInherited;
    this.#labels = options.labels;
    this.#confirmed = this.#checked = http.stopwatch();
    const holder: Holder = {
      group,
      change: (call) => this.#act((tenure) => this.#leases.changing(() => http.json(call(tenure)))),
      emit: (event) => this.#emit(event),
    };
    this.#claims = new Claims(holder);
    this.#sessions = new Sessions(holder);
    const tenure = () => this.#tenure;
    this.#leases = new Leases({
      http,
      group,
      isShared: isInherited,
      tenure,
      verdict: () => this.verdict(),
      act: (make) => this.#act(make),
      leaseLost: (lease) => this.#emit({ type: "lease_lost", lease }),
    });
  }

  static async join(http: Http, group: string, member: string | undefined, options: JoinOptions): Promise<Membership> {
    const name = member ?? (await generatedName());
    const wrapper = await findWrapper();
    if (wrapper?.group === group && wrapper.member === name)
      throw invalid(
        `${name} is the member of the wrapper around this process, and joining as it would end the wrapper; inherit() acts under its tenure`,
      );
    return new Membership(http, group, name, options, false).#start();
  }

  static async inherit(http: Http, options: InheritOptions): Promise<Membership> {
    const wrapper = await findWrapper();
    if (!wrapper)
      throw invalid("TENURE_ID and TENURE_GROUP are not set: start this program by tenure join or tenure lock");
    return new Membership(http, wrapper.group, wrapper.member, options, true).#start();
  }

  #start(): Promise<Membership> {
    const join = async () => {
      await this.#joinPatiently();
      this.#running = this.#beat();
      return this;
    };
    const leave = async () => this.#tenure && this.leave();
    return this.#http.joins.grant([`${this.group}/${this.member}`], this.#options.signal, join, leave);
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
  claim(registry: string, key: string, options: ClaimOptions = {}): Promise<Claimed> {
    return this.#claims.claim(registry, key, options);
  }

  /**
   * Claims keys that have no living owner, 200 in a call. The results are in the order of the keys, `held` for those of other
   * members. After an error the calls before it have taken effect.
   */
  claimMany(registry: string, keys: string[], options: { signal?: AbortSignal } = {}): Promise<ClaimResult[]> {
    return this.#claims.claimMany(registry, keys, options.signal);
  }

  releaseClaim(registry: string, key: string): Promise<void> {
    return this.#claims.release(registry, key);
  }

  /**
   * Acquires a lease; `lease_held` if another member has it, `unsettled` while the store waits after a loss. The holder is the
   * membership: tasks of one process that acquire the same lease get the same `Lease`.
   */
  acquire(lease: string, options: AcquireOptions = {}): Promise<Lease> {
    return this.#leases.acquire(lease, options);
  }

  /** Acquires those of these leases that are free, 200 in a call. After an error the calls before it have taken effect. */
  acquireMany(leases: string[]): Promise<Lease[]> {
    return this.#leases.acquireMany(leases);
  }

  /** Works on targets of the group, as a node of a fleet. */
  fleet(work: (assignment: Assignment) => Promise<void>, options: FleetOptions = {}): Fleet {
    return new Fleet(new Group(this.#http, this.group), this, work, options, () => this.#http.stopwatch());
  }

  /** Attaches a connection to a session, which is created or resumed. */
  attach(session: string, connection: string, options: AttachOptions = {}): Promise<Attached> {
    return this.#sessions.attach(session, connection, options);
  }

  /** Detaches a connection; a newer attach of it, by another member, stays. */
  detach(session: string, connection: string): Promise<void> {
    return this.#sessions.detach(session, connection);
  }

  /** Changes the data of a session: a field replaces the old value, `null` removes it. */
  patchSession(session: string, data: SessionData): Promise<Session> {
    const url = path("groups", this.group, "sessions", session);
    return this.#act((tenure) =>
      this.#leases.changing(() =>
        this.#http.json({ method: "PATCH", path: url, body: { tenure, data }, check: isSession }),
      ),
    );
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
    if (!over && !this.#isInherited)
      await this.#http.json<void>({ method: "DELETE", path: this.#tenurePath(this.#tenure) });
  }

  /** `await using` leaves. No error of it replaces one of the block: the store frees all when the ttl is over. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.leave().catch(() => {});
  }

  #tenurePath(tenure: string, ...rest: string[]): string {
    return path("groups", this.group, "tenures", tenure, ...rest);
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

  /** Joins, also if the daemon comes up later. */
  async #joinPatiently(): Promise<void> {
    const { patienceMs = 0, signal } = this.#options;
    const waited = this.#http.stopwatch();
    for (let pause = 50; ; pause = Math.min(2 * pause, 1_000)) {
      try {
        return await this.#enter(signal);
      } catch (error) {
        const rest = patienceMs - waited.elapsed();
        if (!(error instanceof TenureError && passes(error)) || rest <= 0 || signal?.aborted) throw error;
        await sleep(Math.min(rest, Math.max(error.retryAfterMs ?? 0, jitter(pause, 0.5))), signal);
        if (signal?.aborted) throw error;
      }
    }
  }

  #enter(caller?: AbortSignal): Promise<void> {
    return this.#isInherited ? this.#takeOver() : this.#join(caller);
  }

  /** Takes over the tenure that the wrapper has now. It runs from a heartbeat. */
  async #takeOver(): Promise<void> {
    const wrapper = await findWrapper();
    if (!wrapper || wrapper.tenure === this.#tenure) throw notYet("the wrapper has not joined again");
    const url = path("groups", this.group, "members", this.member);
    const member = await this.#http.json<Member & Joined>({ path: url, check: isJoined });
    if (member.tenure !== wrapper.tenure) throw tenureEnded(wrapper.tenure, "unknown");
    const check = ({ expires_in_ms }: Record<string, unknown>) => isCount(expires_in_ms);
    const beat: Call = {
      method: "PUT",
      path: this.#tenurePath(wrapper.tenure, "beat"),
      isBeat: true,
      pool: "beats",
      check,
    };
    const { sent } = await this.#http.call<unknown>(beat);
    this.#begin(member, sent);
  }

  async #join(caller?: AbortSignal): Promise<void> {
    const body = {
      member: this.member,
      ...(this.#options.ttlMs === undefined ? {} : { ttl_ms: this.#options.ttlMs }),
      ...(this.#labels === undefined ? {} : { labels: this.#labels }),
    };
    const url = path("groups", this.group, "members");
    // A late join would supersede the one that was repeated.
    await this.#http.learn();
    const call: Call = { method: "POST", path: url, body, check: isJoined, caller };
    const { body: joined, sent } = await this.#http.call<Joined>(call);
    this.#begin(joined, sent);
  }

  #begin(joined: Joined, sent: Stopwatch): void {
    this.#leases.begin();
    this.#tenure = joined.tenure;
    this.#ttl = joined.ttl_ms;
    this.#ended = this.#stop.signal.aborted ? "left" : undefined;
    this.#mayHaveJoined = false;
    this.#reclaim = this.#claims.size > 0;
    this.#reattach = this.#sessions.size > 0;
    this.#checked = sent;
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
    // Another process may work under a lease whose release by an operator was noticed here.
    const list = snapshot.named && !this.#isInherited ? { revision: snapshot.named } : {};
    const body = snapshot.known ? { ...list, seen: snapshot.known } : undefined;
    const timeoutMs = Math.min(500, this.#ttl / 6);
    const beat = {
      method: "PUT" as const,
      path: this.#tenurePath(tenure, "beat"),
      body,
      timeoutMs,
      attempts: 1,
      isBeat: true,
      pool: "beats" as const,
      check: ({ expires_in_ms, revision }: Record<string, unknown>) =>
        isCount(expires_in_ms) && (revision == null || isCount(revision)),
    };
    try {
      const { body: renewed, sent } = await this.#http.call<{ expires_in_ms: number; revision?: number | null }>(beat);
      if (this.#ended !== undefined) return this.#over();
      // Compared before it is confirmed: what differs is doubted from this answer on.
      if (this.#leases.compare(snapshot, renewed.revision ?? 0)) this.#reclaim = this.#reattach = true;
      // Another member's claim does not change our revision.
      const isDue = this.#checked.elapsed() >= (this.#options.checkClaimsMs ?? 60_000);
      if (isDue && this.#claims.size > 0) this.#reclaim = true;
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
    if (!this.#mayHaveJoined && !this.#isInherited) {
      const check = ({ tenure, alive }: Record<string, unknown>) => isText(tenure) && typeof alive === "boolean";
      const call = this.#http.json<Member>({ path: path("groups", this.group, "members", this.member), check });
      const found = await orNull(call);
      if (found?.alive && found.tenure !== this.#tenure) {
        this.#ended = "superseded";
        return this.#ended;
      }
    }
    if (this.#stop.signal.aborted) return "left";
    try {
      await this.#enter();
    } catch (error) {
      this.#mayHaveJoined ||= error instanceof TenureError && error.outcome === "unknown";
      throw error;
    }
    if (this.#stop.signal.aborted) return "left";
    this.#emit({ type: "rejoined", tenure: this.#tenure });
    void this.#holdAgain();
    return undefined;
  }

  /** Attaches and claims again what other members have not taken over. */
  async #holdAgain(): Promise<void> {
    if (this.#isHolding) return;
    this.#isHolding = true;
    while ((this.#reclaim || this.#reattach) && this.verdict() !== "lost") {
      const [reattach, reclaim] = [this.#reattach, this.#reclaim];
      this.#reattach = this.#reclaim = false;
      if (reclaim) this.#checked = this.#http.stopwatch();
      // One that fails does not hold up the other: the grace of the sessions is running.
      const [isAttached, isClaimed] = await Promise.all([
        !reattach || this.#sessions.again().catch(() => false),
        !reclaim || this.#claims.again().catch(() => false),
      ]);
      if (!isAttached) this.#reattach = true;
      if (!isClaimed) this.#reclaim = true;
      if (!isAttached || !isClaimed) await sleep(jitter(this.#ttl / 12, 1 / 4), this.#stop.signal);
    }
    this.#isHolding = false;
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
    else this.#lostTimer = setTimeout(() => this.#watch(), clamp(this.#ttl - this.#confirmed.elapsed()));
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

const isJoined = ({ tenure, ttl_ms }: Record<string, unknown>) => isText(tenure) && isCount(ttl_ms) && ttl_ms > 0;
const isSession = ({ session }: Record<string, unknown>) => isText(session);
