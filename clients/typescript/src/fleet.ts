import { type Stopwatch, sleep } from "./clock.js";
import type { Group } from "./group.js";
import type { Lease } from "./lease.js";
import type { Membership } from "./membership.js";
import { rank } from "./placement.js";
import type { Target } from "./types.js";

/** The registry in which a node that takes no more targets claims its own name. */
const DRAINING = "fleet.draining";
const WEIGHT = "fleet.weight";
const RANK_DELAY_MS = 200;
const MAX_RANK_DELAY_MS = 2_000;
const PAUSE_MS = 50;

export interface FleetOptions {
  /** How often the targets are read; 500 by default. */
  everyMs?: number;
  /** How long a target has to prefer another node before it moves there; 10,000 by default. */
  stabilityMs?: number;
  /** How long `drain()` waits for work to end; 5,000 by default. */
  stopWithinMs?: number;
  /** Told of each failure to read or acquire. Work on held leases continues while their verdict is `held`. */
  onError?: (error: unknown) => void;
}

/** A target that this node works on, for as long as it holds its lease. */
export class Assignment {
  readonly lease: Lease;
  /** Aborted when the work has to end. */
  readonly signal: AbortSignal;

  constructor(lease: Lease, signal: AbortSignal) {
    this.lease = lease;
    this.signal = signal;
  }

  get target(): string {
    return this.lease.name;
  }

  /** Give it to what you write to, so that it can reject late writers. */
  get token(): number {
    return this.lease.token;
  }

  /** Waits for a pause, and until the lease is `held`. False: end the work. */
  async nextCycle(pauseMs = 0): Promise<boolean> {
    for (await sleep(pauseMs, this.signal); !this.signal.aborted; await sleep(PAUSE_MS, this.signal)) {
      const verdict = this.lease.verdict();
      if (verdict !== "uncertain") return verdict === "held";
    }
    return false;
  }
}

interface Work {
  lease: Lease;
  stop: AbortController;
  isOver: boolean;
  ended: Promise<void>;
}

/**
 * This node's part in a fleet: nodes that share the targets of a group, so that exactly one works on each. Every node runs the
 * same program. `work` runs for each target whose lease this node holds, and continues while `assignment.nextCycle()` is true.
 *
 * A target is taken by the node that it prefers; when that one does not come, by the next one. Work that does not end keeps its
 * lease.
 */
export class Fleet {
  readonly #group: Group;
  readonly #member: Membership;
  readonly #work: (assignment: Assignment) => Promise<void>;
  readonly #options: FleetOptions;
  readonly #stopwatch: () => Stopwatch;
  readonly #held = new Map<string, Work>();
  readonly #end = new AbortController();
  readonly #running: Promise<void>;
  #free = new Map<string, Stopwatch>();
  /** Targets that are held here and prefer another node. */
  #away = new Map<string, Stopwatch>();

  constructor(
    group: Group,
    member: Membership,
    work: (assignment: Assignment) => Promise<void>,
    options: FleetOptions,
    stopwatch: () => Stopwatch,
  ) {
    this.#group = group;
    this.#member = member;
    this.#work = work;
    this.#options = options;
    this.#stopwatch = stopwatch;
    this.#running = this.#run();
  }

  /** The targets that this node works on. */
  get held(): string[] {
    return [...this.#held.keys()].sort();
  }

  /**
   * Ends the work and releases the leases to the other nodes. Then the member can leave. Returns the targets whose work did not end
   * in time, and whose leases are still held: end the process, so that they are free after its ttl.
   */
  async drain(): Promise<string[]> {
    this.#end.abort();
    await this.#running;
    // Without it the other nodes take the targets a little later.
    await this.#member.claim(DRAINING, this.#member.member).catch((error: unknown) => this.#failed(error));
    for (const { stop } of this.#held.values()) stop.abort();
    const within = sleep(this.#options.stopWithinMs ?? 5_000);
    await Promise.race([within, Promise.all([...this.#held.values()].map(({ ended }) => ended))]);
    await Promise.all(this.held.map((name) => this.#giveUp(name)));
    return this.held;
  }

  #failed(error: unknown): void {
    this.#options.onError?.(error);
  }

  async #run(): Promise<void> {
    for (;;) {
      await sleep(this.#options.everyMs ?? 500, this.#end.signal);
      if (this.#end.signal.aborted) return;
      await this.#look().catch((error: unknown) => this.#failed(error));
    }
  }

  /** Releases targets of other nodes and acquires those of this one. Reads all targets or does nothing. */
  async #look(): Promise<void> {
    const targets = new Map<string, Target>();
    for await (const target of this.#group.targets()) targets.set(target.target, target);
    const over = [...this.#held].filter(([name, work]) => work.isOver || (targets.get(name)?.paused ?? true));
    await Promise.all(over.map(([name]) => this.#giveUp(name)));
    await this.#handOver(targets);
    const wanted = await this.#wanted(targets);
    if (wanted.length === 0) return;
    for (const lease of await this.#member.acquireMany(wanted)) this.#begin(lease);
  }

  #begin(lease: Lease): void {
    const stop = new AbortController();
    const abort = () => stop.abort();
    lease.signal.addEventListener("abort", abort);
    const work: Work = { lease, stop, isOver: false, ended: Promise.resolve() };
    work.ended = (async () => this.#work(new Assignment(lease, stop.signal)))()
      .catch((error: unknown) => this.#failed(error))
      .then(() => {
        work.isOver = true;
        lease.signal.removeEventListener("abort", abort);
      });
    this.#held.set(lease.name, work);
  }

  /** Gives targets to nodes that they have preferred for long, so that one that comes and goes moves nothing. */
  async #handOver(targets: Map<string, Target>): Promise<void> {
    const away = new Map<string, Stopwatch>();
    for (const name of this.#held.keys()) {
      const preferred = targets.get(name)?.preferred ?? this.#member.member;
      if (preferred !== this.#member.member) away.set(name, this.#away.get(name) ?? this.#stopwatch());
    }
    this.#away = away;
    const stable = [...away].filter(([, since]) => since.elapsed() >= (this.#options.stabilityMs ?? 10_000));
    await Promise.all(stable.map(([name]) => this.#giveUp(name, targets.get(name)?.preferred ?? undefined)));
  }

  /** Free targets whose turn for this node has come. Held by this tenure without work: an answer was lost. */
  async #wanted(targets: Map<string, Target>): Promise<string[]> {
    const isFree = ({ target, paused, alive, tenure }: Target) =>
      !paused && !this.#held.has(target) && (!alive || tenure === this.#member.tenure);
    const free = [...targets.values()].filter(isFree);
    this.#free = new Map(free.map(({ target }) => [target, this.#free.get(target) ?? this.#stopwatch()]));
    const isAstray = ({ preferred }: Target) => preferred !== this.#member.member;
    const nodes = free.some(isAstray) ? await this.#nodes() : new Map<string, number>();
    const delay = (target: Target) => (isAstray(target) ? this.#delay(target.target, nodes) : 0);
    return free
      .filter((target) => (this.#free.get(target.target)?.elapsed() ?? 0) >= delay(target))
      .map(({ target }) => target);
  }

  #delay(target: string, nodes: Map<string, number>): number {
    const place = rank(target, nodes).indexOf(this.#member.member);
    return Math.min((place < 0 ? nodes.size : place) * RANK_DELAY_MS, MAX_RANK_DELAY_MS);
  }

  async #nodes(): Promise<Map<string, number>> {
    const nodes = new Map<string, number>();
    for await (const { member, alive, labels } of this.#group.members())
      if (alive) nodes.set(member, Number.parseInt(labels?.[WEIGHT] ?? "1", 10) || 1);
    return nodes;
  }

  /** Stops the work. Its lease is released when it has ended. */
  async #giveUp(name: string, to?: string): Promise<void> {
    const work = this.#held.get(name);
    if (!work) return;
    work.stop.abort();
    await Promise.race([work.ended, sleep(PAUSE_MS)]);
    if (!work.isOver) return;
    this.#held.delete(name);
    await work.lease.release(to).catch((error: unknown) => this.#failed(error));
  }
}
