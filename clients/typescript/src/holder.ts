import type { Call } from "./http.js";
import type { MembershipEvent } from "./membership.js";

/** What claims and sessions need of their membership. */
export interface Holder {
  readonly group: string;
  /** Makes a call that changes what the current tenure holds. */
  change<T>(call: (tenure: string) => Call): Promise<T>;
  emit(event: MembershipEvent): void;
}

/** What the store changes in one step. */
const BATCH = 200;

/** The parts of a list that fit into one call each. */
export function* parts<T>(all: T[]): Generator<T[]> {
  for (let at = 0; at < all.length; at += BATCH) yield all.slice(at, at + BATCH);
}
