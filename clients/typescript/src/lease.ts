import { jitter, type Stopwatch, sleep } from "./clock.js";
import { gaveUp, TenureError, tenureEnded } from "./error.js";
import { parts } from "./holder.js";
import { type Call, type Http, isCount, isList, isText, passes, path } from "./http.js";
import type { Verdict } from "./membership.js";
import type { Acquired, AcquiredMany, LeaseState, Page } from "./types.js";

/** The longest wait of one call. */
const PART_MS = 60_000;
/** A call without an answer takes effect within this time. */
const ATTEMPT_MS = 1_000;
/** A call that took this long has waited. */
const WAITED_MS = 250;

/** What the leases need of their membership. */
export interface Holder {
  readonly http: Http;
  readonly group: string;
  /** Whether other processes act under the tenure: what is unknown here may be theirs. */
  readonly isShared: boolean;
  tenure(): string;
  verdict(): Verdict;
  /** Makes an act under the current tenure. */
  act<T>(make: (tenure: string) => Promise<T>): Promise<T>;
  leaseLost(lease: Lease): void;
}

export interface AcquireOptions {
  /** Wait in the queue of the lease for this long; after each minute at its end again. */
  waitMs?: number;
  /** How many members can hold it at a time; 1 by default. */
  holders?: number;
  /** Gives the call up; what it was granted is released. */
  signal?: AbortSignal;
}

/**
 * A held lease. Work under it only while `verdict()` is `held`, and pass `token` to storage that can reject a lower one. Once
 * lost it stays lost, even if the membership recovers; acquire again.
 */
export class Lease {
  readonly name: string;
  /** The fencing token: higher than that of every earlier grant. */
  readonly token: number;
  /** The place among the holders of a shared lease; 0 for an exclusive one. */
  readonly place: number;
  /**
   * Rises each time that the lease is granted while no place of it is taken. All holders have it in common; that of an exclusive
   * lease is the token.
   */
  readonly generation: number;
  readonly tenure: string;
  /** With a wait: how long it took. */
  readonly waitedMs: number | undefined;
  readonly #leases: Leases;
  readonly #lost = new AbortController();

  constructor(leases: Leases, tenure: string, name: string, granted: Acquired, waitedMs: number | undefined) {
    this.#leases = leases;
    this.name = name;
    this.token = granted.token;
    this.place = granted.place ?? 0;
    this.generation = granted.generation ?? granted.token;
    this.tenure = tenure;
    this.waitedMs = waitedMs;
  }

  /** `held`: work. `uncertain`: pause. `lost`: stop for good. Computed from the clock now, without I/O. */
  verdict(): Verdict {
    return this.#lost.signal.aborted ? "lost" : this.#leases.verdictOf(this);
  }

  /** Aborted when the lease is lost or released. A blocked event loop delays it, so check `verdict()` before each write. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Releases the lease; `to` reserves it for another living member for a few seconds. Stop the work first. */
  release(to?: string): Promise<void> {
    return this.#leases.release(this, to);
  }

  /** `await using` releases. No error of it replaces one of the block: it is repeated in the background. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release().catch(() => {});
  }

  /** Marks it as lost. Returns whether it was not before. */
  lose(): boolean {
    const first = !this.#lost.signal.aborted;
    this.#lost.abort(
      new TenureError(409, { code: "lease_lost", detail: `the lease ${this.name} is lost: stop its work` }),
    );
    return first;
  }
}

/** What a beat was sent with. */
export interface Sent {
  /** The revision that it named: never one that was not listed, because naming it says that a release was noticed. */
  readonly named: number | undefined;
  readonly known: number;
}

/** The leases of a membership, and the revision that shows what the daemon changed about them. */
export class Leases {
  readonly #holder: Holder;
  /** The held leases, by name. */
  #entries = new Map<string, Lease>();
  /** Acquires in flight, by name. */
  readonly #asking = new Map<string, number>();
  #releasing = new Map<string, Promise<void>>();
  /** Leases that the store may have for us although none is here, since when. */
  readonly #perhaps = new Map<string, Stopwatch>();
  /** The revision at which the leases were listed last; without leases that of the last beat. */
  #listed: number | undefined;
  /** The highest revision in an answer under this tenure. */
  #known = 0;
  /** Calls in flight that can change the revision. */
  #acting = 0;
  /** A call may have changed the revision without telling it. */
  #unexplained = false;
  /** Whether all verdicts are uncertain until the leases are listed. */
  #doubted = false;
  /** Counts the reasons to list again. A list that began before the newest one does not settle it. */
  #wanted = 0;
  #settled = 0;
  #lists = 0;
  #listing: Promise<void> | undefined;

  constructor(holder: Holder) {
    this.#holder = holder;
  }

  verdictOf(lease: Lease): Verdict {
    const verdict = lease.tenure === this.#holder.tenure() ? this.#holder.verdict() : "lost";
    if (verdict === "lost") this.#lose(lease);
    return verdict === "held" && this.#doubted ? "uncertain" : verdict;
  }

  async acquire(name: string, options: AcquireOptions): Promise<Lease> {
    const { waitMs = 0, signal } = options;
    await this.#released(name, signal);
    for (const waited = this.#holder.http.stopwatch(); ; ) {
      if (signal?.aborted) throw gaveUp(signal, "unchanged");
      const asked = this.#holder.http.stopwatch();
      const restMs = waitMs - waited.elapsed();
      try {
        return await this.#askOnce(name, restMs, options, waitMs > 0 ? waited : undefined);
      } catch (error) {
        const rest = waitMs - waited.elapsed();
        if (rest <= 0 || signal?.aborted || !(error instanceof TenureError && mayWait(error))) throw error;
        // After a wait soon: a part is over, or something in between cuts long requests.
        const pause =
          asked.elapsed() >= WAITED_MS ? jitter(50, 0.5) : Math.max(jitter(500, 0.5), error.retryAfterMs ?? 0);
        await sleep(Math.min(pause, rest), signal);
      }
    }
  }

  /** Waits until an earlier release of the lease is done. */
  async #released(name: string, signal: AbortSignal | undefined): Promise<void> {
    const releasing = this.#releasing.get(name);
    if (!releasing) return;
    const over = new AbortController();
    const abort = () => over.abort();
    signal?.addEventListener("abort", abort);
    await Promise.race([releasing, sleep(2 ** 31 - 1, over.signal)]);
    signal?.removeEventListener("abort", abort);
    abort();
  }

  async acquireMany(names: string[]): Promise<Lease[]> {
    const all: Lease[] = [];
    for (const part of parts([...new Set(names)].filter((name) => !this.#releasing.has(name))))
      all.push(...(await this.#askMany(part)));
    return all;
  }

  async #askMany(names: string[]): Promise<Lease[]> {
    return this.#holder.act(async (tenure) => {
      const lists = this.#lists;
      for (const name of names) this.#asking.set(name, (this.#asking.get(name) ?? 0) + 1);
      const url = path("groups", this.#holder.group, "leases-acquire");
      const check = ({ results }: Record<string, unknown>) => isList(results, "lease", "outcome");
      const call: Call = { method: "POST", path: url, body: { tenure, leases: names, seen: this.#known }, check };
      try {
        const { results } = await this.changing(() => this.#holder.http.json<AcquiredMany>(call));
        if (tenure !== this.#holder.tenure()) throw tenureEnded(tenure, undefined);
        const granted = results.flatMap(({ lease, token, place, generation, outcome }) =>
          (outcome === "granted" || outcome === "kept") && isCount(token) && token > 0
            ? [
                this.#enter(
                  lease,
                  tenure,
                  { lease, token, outcome, place: place ?? 0, generation: generation ?? token },
                  undefined,
                ),
              ]
            : [],
        );
        if (lists !== this.#lists) await this.#listAgain();
        return granted;
      } catch (error) {
        if (error instanceof TenureError && error.outcome === "unknown") for (const name of names) this.#mayHave(name);
        throw error;
      } finally {
        for (const name of names) this.#asked(name);
      }
    });
  }

  /** A grant; the one that is held if it is the same. */
  #enter(name: string, tenure: string, granted: Acquired, waitedMs: number | undefined): Lease {
    const held = this.#entries.get(name);
    if (held?.token === granted.token && held.verdict() !== "lost") return held;
    if (held) this.#lose(held);
    const lease = new Lease(this, tenure, name, granted, waitedMs);
    this.#entries.set(name, lease);
    return lease;
  }

  async #askOnce(name: string, waitMs: number, options: AcquireOptions, waited: Stopwatch | undefined): Promise<Lease> {
    try {
      return await this.#holder.act(async (tenure) => {
        const lists = this.#lists;
        this.#asking.set(name, (this.#asking.get(name) ?? 0) + 1);
        try {
          const granted = await this.#ask(name, tenure, waitMs, options);
          if (tenure !== this.#holder.tenure()) throw tenureEnded(tenure, undefined);
          const lease = this.#enter(name, tenure, granted, waited && Math.round(waited.elapsed()));
          // A list in between may have named the revision of an operator's release of this very grant.
          if (lists !== this.#lists) await this.#listAgain();
          return lease;
        } finally {
          this.#asked(name);
        }
      });
    } catch (error) {
      // It may be granted: then the list shows it, and it is released.
      if (error instanceof TenureError && error.outcome === "unknown") {
        this.#mayHave(name);
        void this.#list();
      }
      throw error;
    }
  }

  #asked(name: string): void {
    const others = (this.#asking.get(name) ?? 1) - 1;
    if (others > 0) this.#asking.set(name, others);
    else this.#asking.delete(name);
  }

  async #ask(name: string, tenure: string, rest: number, { holders, signal }: AcquireOptions): Promise<Acquired> {
    const body = { tenure, seen: this.#known, ...(holders === undefined ? {} : { holders }) };
    const check = ({ token, outcome, place }: Record<string, unknown>) =>
      isCount(token) && token > 0 && isText(outcome) && (place == null || isCount(place));
    const call: Call = { method: "POST", path: this.#path(name, "acquire"), body, check, signal };
    if (rest > 0) Object.assign(call, { waitMs: Math.min(rest, PART_MS), attempts: 1, pool: "waits" });
    try {
      return await this.changing(() => this.#holder.http.json<Acquired>(call));
    } catch (error) {
      if (error instanceof TenureError && error.outcome === "unknown") this.#wanted++;
      throw error;
    }
  }

  #mayHave(name: string): void {
    this.#perhaps.set(name, this.#holder.http.stopwatch());
    this.#wanted++;
  }

  #path(name: string, verb: string): string {
    return path("groups", this.#holder.group, "leases", name, verb);
  }

  async release(lease: Lease, to?: string): Promise<void> {
    lease.lose();
    if (lease.tenure !== this.#holder.tenure()) return;
    if (this.#entries.get(lease.name) === lease) this.#entries.delete(lease.name);
    await this.#giveUp(lease.name, lease.token, lease.tenure, to);
  }

  #giveUp(name: string, token: number, tenure: string, to?: string): Promise<void> {
    const body = { tenure, token, seen: this.#known, ...(to === undefined ? {} : { to }) };
    const given = this.changing(() =>
      this.#holder.http.json<void>({ method: "POST", path: this.#path(name, "release"), body }),
    )
      .catch((error: unknown) => {
        // Released by an earlier attempt, taken away, or ended with the tenure: it is not ours in any case.
        const over = error instanceof TenureError && ["not_holder", "tenure_ended"].includes(error.code);
        if (over) return;
        // If it is still ours, the list shows it, and it is released again.
        this.#mayHave(name);
        throw error;
      })
      .then(() => void this.#perhaps.delete(name));
    const settled: Promise<void> = given
      .catch(() => {})
      .then(() => {
        if (this.#releasing.get(name) === settled) this.#releasing.delete(name);
      });
    this.#releasing.set(name, settled);
    return given;
  }

  /** Makes a call that can change the revision. */
  async changing<T>(make: () => Promise<T>): Promise<T> {
    const tenure = this.#holder.tenure();
    const told = (revision: number | null | undefined) => {
      if (tenure !== this.#holder.tenure()) return;
      if (revision == null) this.#unexplained = true;
      else this.#known = Math.max(this.#known, revision);
    };
    this.#acting++;
    try {
      const answer = await make();
      told((answer as { revision?: number | null } | undefined)?.revision);
      return answer;
    } catch (error) {
      if (!(error instanceof TenureError) || error.outcome === "unknown") told(undefined);
      throw error;
    } finally {
      this.#acting--;
    }
  }

  /** The snapshot for a beat that is about to be sent. */
  sending(): Sent {
    return { named: this.#listed, known: this.#known };
  }

  /** Compares the revision in the answer to a beat. Returns whether the store lost its latest writes. */
  compare(sent: Sent, seen: number): boolean {
    const tailLost = seen < sent.known;
    const explained = !tailLost && (seen <= this.#known || this.#unexplained || this.#acting > 0);
    if (this.#entries.size + this.#asking.size === 0 && this.#wanted === this.#settled) {
      [this.#listed, this.#known, this.#unexplained] = [seen, seen, false];
      return tailLost;
    }
    if (tailLost) this.#known = seen;
    if (seen === this.#listed && this.#wanted === this.#settled) return tailLost;
    if (!explained) this.#doubted = true;
    if (!explained) this.#wanted++;
    this.#list();
    return tailLost;
  }

  /** Lists now, even if a list that began earlier is still running. Until one succeeds, all verdicts are uncertain. */
  async #listAgain(): Promise<void> {
    this.#doubted = true;
    this.#wanted++;
    await this.#listing;
    await this.#list();
  }

  /** Reads the leases of this tenure. After a failure the next beat repeats it. */
  #list(): Promise<void> {
    if (this.#listing) return this.#listing;
    const listing = this.#readBack()
      .catch(() => {})
      .then(() => {
        if (this.#listing === listing) this.#listing = undefined;
      });
    this.#listing = listing;
    return listing;
  }

  async #readBack(): Promise<void> {
    const tenure = this.#holder.tenure();
    const began = this.#holder.http.stopwatch();
    const [before, wanted] = [[...this.#entries.values()], this.#wanted];
    const busy = new Set([...this.#asking.keys(), ...this.#releasing.keys()]);
    this.#lists++;
    const { held, revision } = await this.#readAll(tenure);
    this.#lists++;
    if (tenure !== this.#holder.tenure()) return;
    for (const lease of before) {
      if (held.get(lease.name) !== lease.token) this.#lose(lease);
    }
    this.#listed = revision;
    this.#known = Math.max(this.#known, revision);
    this.#settled = wanted;
    if (wanted === this.#wanted) this.#doubted = false;
    if (this.#acting === 0) this.#unexplained = false;
    const isOurs = (name: string) =>
      [busy, this.#asking, this.#releasing, this.#entries].some((names) => names.has(name));
    for (const [name, token] of held) {
      // Lost by time, or granted by an acquire whose answer was lost: nobody works under it.
      const mayGive = !this.#holder.isShared || this.#perhaps.has(name);
      if (!isOurs(name) && mayGive) this.#giveUp(name, token, tenure).catch(() => {});
    }
    for (const [name, asked] of this.#perhaps) {
      const isOver = !held.has(name) && asked.elapsed() - began.elapsed() > ATTEMPT_MS;
      if (this.#entries.has(name) || isOver) this.#perhaps.delete(name);
    }
    // A call without an answer can still take effect for a while: the next beat lists again.
    if (this.#holder.isShared && this.#perhaps.size > 0) this.#wanted++;
  }

  async #readAll(tenure: string): Promise<{ held: Map<string, number>; revision: number }> {
    const call: Call = { path: path("groups", this.#holder.group, "leases"), query: { tenure } };
    const held = new Map<string, number>();
    let revision: number | undefined;
    type Leases = Page & { leases: LeaseState[]; revision?: number | null };
    for await (const page of this.#holder.http.pages<Leases>(call, "leases", "lease")) {
      revision ??= page.revision ?? 0;
      for (const lease of page.leases) {
        const token = ownToken(lease, tenure);
        if (token !== undefined) held.set(lease.lease, token);
      }
    }
    return { held, revision: revision ?? 0 };
  }

  #lose(lease: Lease): void {
    if (!lease.lose()) return;
    if (this.#entries.get(lease.name) === lease) this.#entries.delete(lease.name);
    // The daemon may still have it for this tenure: the list shows it.
    this.#mayHave(lease.name);
    this.#holder.leaseLost(lease);
  }

  /** Loses all leases, and reports each unless the membership gave them up itself. */
  loseAll(reported: boolean): void {
    for (const lease of this.#entries.values()) {
      if (reported) this.#lose(lease);
      else lease.lose();
    }
  }

  /** Begins a new tenure, without leases. */
  begin(): void {
    this.#entries = new Map();
    this.#releasing = new Map();
    this.#perhaps.clear();
    this.#listing = this.#listed = undefined;
    this.#known = 0;
    this.#unexplained = this.#doubted = false;
    this.#settled = this.#wanted;
  }
}

/** The token that this tenure has of a lease, unless an operator released it. */
function ownToken(lease: LeaseState, tenure: string): number | undefined {
  if (!lease.holders) return lease.tenure === tenure ? lease.token : undefined;
  return lease.holders.find((holder) => holder.tenure === tenure && !holder.revoked)?.token;
}

/** Whether a later call may get the lease. */
const mayWait = (error: TenureError) => passes(error) || ["lease_held", "unsettled"].includes(error.code);
