// A worker that writes only while it holds a lease, and stops when it loses it.
//
//   node worker.js GROUP MEMBER FILE
//
// Exit codes: 0 it left, 3 it lost the lease or its tenure (restart it to acquire again), 1 any other error.

import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

// In your program: from "tenure-client".
import { type Lease, type Membership, Tenure, TenureError } from "../src/index.js";

const [group = "jobs", member = "worker-1", file = "report.log"] = process.argv.slice(2);
const store = new Tenure(process.env.TENURE_STORE ?? "http://127.0.0.1:7717");

async function acquire(membership: Membership, signal: AbortSignal): Promise<Lease | null> {
  while (!signal.aborted) {
    try {
      return await membership.acquire("report");
    } catch (error) {
      // Held by another member, not granted yet, or no answer: all of these pass.
      const mayPass =
        error instanceof TenureError && (error.status === 409 || error.status === 0 || error.status >= 500);
      if (!mayPass) throw error;
      await sleep(Math.min(error.retryAfterMs ?? 200, 200));
    }
  }
  return null;
}

/** Writes until it is told to stop. Returns whether the lease was lost. */
async function work(lease: Lease, signal: AbortSignal): Promise<boolean> {
  while (!signal.aborted) {
    const verdict = lease.verdict();
    if (verdict === "lost") return true;
    // Pass the token to storage that can reject a lower one: no check before a write can replace that.
    if (verdict === "held") appendFileSync(file, `${lease.token} ${process.hrtime.bigint()}\n`);
    await sleep(20);
  }
  return false;
}

const stop = new AbortController();
for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, () => stop.abort());

const membership = await store.group(group).join(member, { ttlMs: Number(process.env.TENURE_TTL_MS ?? 30_000) });
console.log("joined", membership.tenure);
const lease = await acquire(membership, stop.signal);
if (lease) console.log("acquired", lease.token);
const isLost = lease ? await work(lease, stop.signal) : false;
console.log(isLost ? "lost" : "left");
await membership.leave().catch(console.error);
process.exit(isLost ? 3 : 0);
