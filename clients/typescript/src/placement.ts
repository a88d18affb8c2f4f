const MASK = (1n << 64n) - 1n;
const MAX_WEIGHT = 1_000;

/**
 * How much a node of a fleet is preferred for a target: higher is better. It is weighted rendezvous hashing, as all programs of
 * Tenure compute it (`crates/tenure-core/src/placement/golden.txt` pins the results). It is only a preference; the lease decides.
 */
export function score(node: string, target: string, weight = 1): number {
  const unit = Number(hash(node, target) >> 11n) / 2 ** 53;
  return unit === 0 ? 0 : -Math.min(Math.max(weight, 1), MAX_WEIGHT) / Math.log(unit);
}

/** The nodes, given with their weights, best first. Names are ASCII. */
export function rank(target: string, nodes: ReadonlyMap<string, number>): string[] {
  const scores = new Map([...nodes].map(([node, weight]) => [node, score(node, target, weight)]));
  return [...nodes.keys()].sort((a, b) => (scores.get(b) ?? 0) - (scores.get(a) ?? 0) || (a < b ? -1 : 1));
}

/** FNV-1a and the finaliser of SplitMix64. */
export function hash(node: string, target: string): bigint {
  let hashed = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(`${node}\0${target}`))
    hashed = ((hashed ^ BigInt(byte)) * 0x100000001b3n) & MASK;
  hashed = ((hashed ^ (hashed >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  hashed = ((hashed ^ (hashed >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return hashed ^ (hashed >> 31n);
}
