import { TenureError } from "./error.js";
import { type Holder, parts } from "./holder.js";
import { type Call, isList, isText, path } from "./http.js";
import { Turns } from "./turns.js";
import type { Claimed, ClaimResult } from "./types.js";

export interface ClaimOptions {
  /** Fail with `claim_held` if another living member has the key. */
  ifAbsent?: boolean;
  /** Gives the call up; what it was granted goes back. */
  signal?: AbortSignal;
}

/** The keys that a membership has claimed: they are claimed again under a new tenure. */
export class Claims {
  readonly #holder: Holder;
  readonly #keys = new Map<string, Set<string>>();
  readonly #turns = new Turns();

  constructor(holder: Holder) {
    this.#holder = holder;
  }

  get size(): number {
    return this.#keys.size;
  }

  claim(registry: string, key: string, { ifAbsent, signal }: ClaimOptions): Promise<Claimed> {
    let had = false;
    const call = (tenure: string): Call => ({
      method: "PUT",
      path: this.#path(registry, key),
      body: { tenure, ...(ifAbsent ? { if_absent: true } : {}) },
      check: ({ outcome }) => isText(outcome),
      caller: signal,
    });
    return this.#turns.grant(
      [thing(registry, key)],
      signal,
      async () => {
        had = this.#has(registry, key);
        const claimed = await this.#holder.change<Claimed>(call);
        this.#remember(registry, key);
        return claimed;
      },
      async () => had || this.#release(registry, key),
    );
  }

  async claimMany(registry: string, keys: string[], signal: AbortSignal | undefined): Promise<ClaimResult[]> {
    const all: ClaimResult[] = [];
    for (const part of parts(keys)) {
      let fresh: string[] = [];
      const results = await this.#turns.grant(
        part.map((key) => thing(registry, key)),
        signal,
        () => {
          fresh = part.filter((key) => !this.#has(registry, key));
          return this.#claimPart(registry, part, signal);
        },
        async () => {
          for (const key of fresh) await this.#release(registry, key);
        },
      );
      all.push(...results);
    }
    return all;
  }

  async #claimPart(registry: string, keys: string[], caller?: AbortSignal): Promise<ClaimResult[]> {
    const { results } = await this.#holder.change<{ results: ClaimResult[] }>((tenure) => ({
      method: "POST",
      path: this.#path(registry),
      body: { tenure, keys, if_absent: true },
      check: (body) =>
        isList(body.results, "key", "outcome") &&
        (body.results as ClaimResult[]).map(({ key }) => key).join() === keys.join(),
      caller,
    }));
    for (const { key, outcome } of results) {
      if (outcome === "held") this.#keys.get(registry)?.delete(key);
      else this.#remember(registry, key);
    }
    return results;
  }

  release(registry: string, key: string): Promise<void> {
    return this.#turns.run([thing(registry, key)], () => this.#release(registry, key));
  }

  async #release(registry: string, key: string): Promise<void> {
    this.#keys.get(registry)?.delete(key);
    const call = (tenure: string): Call => ({ method: "DELETE", path: this.#path(registry, key), query: { tenure } });
    await this.#holder.change(call).catch((error: unknown) => {
      // Released by an earlier attempt, and claimed by another member since.
      if (!(error instanceof TenureError && error.code === "not_owner" && error.repeated)) throw error;
    });
  }

  /** Claims again what no other member has taken over, and reports the rest. Returns whether it is done. */
  async again(): Promise<boolean> {
    let isDone = true;
    for (const [registry, keys] of this.#keys) {
      for (const part of parts([...keys])) {
        // A call changes the others at the moment.
        const free = part.filter((key) => this.#turns.isFree(thing(registry, key)));
        isDone &&= free.length === part.length;
        if (free.length === 0) continue;
        const things = free.map((key) => thing(registry, key));
        const results = await this.#turns.run(things, () => this.#claimPart(registry, free));
        for (const { key, outcome, owner } of results) {
          if (outcome === "held") this.#holder.emit({ type: "claim_lost", registry, key, owner: owner ?? undefined });
        }
      }
    }
    return isDone;
  }

  #has(registry: string, key: string): boolean {
    return this.#keys.get(registry)?.has(key) ?? false;
  }

  #remember(registry: string, key: string): void {
    const keys = this.#keys.get(registry) ?? new Set();
    this.#keys.set(registry, keys.add(key));
  }

  #path(registry: string, ...rest: string[]): string {
    return path("groups", this.#holder.group, "registries", registry, "claims", ...rest);
  }
}

// No name has a slash.
const thing = (registry: string, key: string) => `${registry}/${key}`;
