import { gaveUp, TenureError } from "./error.js";

/**
 * One call at a time for each thing. A call whose caller gave up runs on until its outcome is known; until then no other call
 * changes what it may have been granted.
 */
export class Turns {
  readonly #last = new Map<string, Promise<void>>();

  isFree(thing: string): boolean {
    return !this.#last.has(thing);
  }

  /** Makes a call after those that came earlier for one of the things. */
  run<T>(things: string[], call: () => Promise<T>): Promise<T> {
    const earlier = Promise.all(things.map((thing) => this.#last.get(thing)));
    const result = earlier.then(call);
    const done = result.then(
      () => {},
      () => {},
    );
    const last = done.then(() => {
      for (const thing of things) if (this.#last.get(thing) === last) this.#last.delete(thing);
    });
    for (const thing of things) this.#last.set(thing, last);
    return result;
  }

  /** Makes a call that may be granted things. If its caller has given up by then, `undo` gives them back. */
  grant<T>(things: string[], caller: AbortSignal | undefined, call: () => Promise<T>, undo: () => Promise<unknown>) {
    return new Promise<T>((resolve, reject) => {
      if (caller?.aborted) return reject(gaveUp(caller, "unchanged"));
      const leave = () => reject(gaveUp(caller, "unknown"));
      caller?.addEventListener("abort", leave);
      const made = this.run(things, async () => {
        if (caller?.aborted) return;
        try {
          const granted = await call();
          if (caller?.aborted) await undo();
          else resolve(granted);
        } catch (error) {
          const mayBeGranted = !(error instanceof TenureError) || error.outcome === "unknown";
          if (caller?.aborted && mayBeGranted) await undo();
          throw error;
        }
      });
      // After the caller gave up this rejects a promise that is rejected already.
      made.catch(reject).then(() => caller?.removeEventListener("abort", leave));
    });
  }
}
