#!/usr/bin/env node
// A member of a group in JavaScript, with only Node's fetch (18 and later).
//
// It joins, sends heartbeats in the background, claims a device, acquires a lease, works while its verdict is held, and
// leaves on TERM or INT. Copy the class Tenure into your program; main() is an example worker.
//
//   TENURE_STORE=http://127.0.0.1:7717 node client.mjs GROUP MEMBER
//
// Exit codes: 0 it left, 3 its tenure ended (restart it to join again), 1 any other error.
//
// Heartbeats share the event loop with your code, so code that blocks it delays them. The verdict accounts for that.

import { setTimeout as sleep } from "node:timers/promises";

const url = process.env.TENURE_STORE || process.env.TENURE_URL || "http://127.0.0.1:7717";
if (process.env.TENURE_URL) console.error("TENURE_URL is an old name: use TENURE_STORE");
const token = process.env.TENURE_TOKEN;

/** An error response of the daemon. Programs check `code`. */
class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `status ${status}`);
    this.status = status;
    this.code = problem.code;
    this.reason = problem.reason;
    this.retryAfter = problem.retry_after_ms ?? 500;
  }
}

/** Makes one call. After any error but Refused the outcome is unknown. */
async function call(method, path, body, timeout = 500) {
  const headers = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  if (token) headers.authorization = `Bearer ${token}`;
  const answer = await fetch(url + path, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(timeout),
  });
  const text = await answer.text();
  if (answer.ok) return text ? JSON.parse(text) : null;
  let problem = {};
  try {
    problem = JSON.parse(text);
  } catch {
    // A proxy in between may send its own pages.
  }
  throw new Refused(answer.status, problem);
}

/** Time that includes suspend: the monotonic clock may not, and the wall clock may be set. */
class Stopwatch {
  constructor() {
    this.monotonic = performance.now();
    this.wall = Date.now();
  }
  elapsed() {
    return Math.max(performance.now() - this.monotonic, Date.now() - this.wall);
  }
}

/** This process as a member, from its join until its tenure ends. */
export class Tenure {
  static async join(group, member, ttl = 30_000) {
    // The ttl runs from the time at which the last confirmed call was *sent*, which is before the store's start of it.
    const sent = new Stopwatch();
    const path = `/v1/groups/${group}`;
    const joined = await call("POST", `${path}/members`, { member, ttl_ms: ttl });
    const tenure = new Tenure();
    Object.assign(tenure, { path, ttl, margin: ttl / 12, id: joined.tenure, confirmed: sent, ended: "" });
    tenure.stop = new AbortController();
    tenure.beats = tenure.#beat();
    return tenure;
  }

  /** held: work. uncertain: pause. lost: stop for good. No network access. */
  verdict() {
    const age = this.confirmed.elapsed();
    if (this.ended || age >= this.ttl) return "lost";
    return age < this.ttl - this.margin ? "held" : "uncertain";
  }

  async #beat() {
    let pause = this.ttl / 3;
    for (;;) {
      try {
        await sleep(pause, undefined, { signal: this.stop.signal });
      } catch {
        return;
      }
      const sent = new Stopwatch();
      try {
        await call("PUT", `${this.path}/tenures/${this.id}/beat`, undefined, Math.min(500, this.ttl / 6));
        // A reply that arrives after the ttl does not revive the tenure.
        if (this.verdict() === "lost") return;
        this.confirmed = sent;
        pause = this.ttl / 3;
      } catch (error) {
        if (error.code === "tenure_ended") {
          this.ended = error.reason;
          return;
        }
        pause = this.ttl / 12; // No reply is not a refusal: retry sooner.
      }
    }
  }

  /** Claims the key for this member, also from a previous owner. */
  claim(registry, key) {
    return call("PUT", `${this.path}/registries/${registry}/claims/${key}`, { tenure: this.id });
  }

  /** Returns the fencing token if the lease was granted, null while it is held by another member. */
  async acquire(lease) {
    try {
      return (await call("POST", `${this.path}/leases/${lease}/acquire`, { tenure: this.id })).token;
    } catch (error) {
      if (error.code === "lease_held" || error.code === "unsettled") return null;
      throw error;
    }
  }

  /** Releases the lease. Stop the work first. */
  release(lease, token) {
    return call("POST", `${this.path}/leases/${lease}/release`, { tenure: this.id, token });
  }

  /** Ends the tenure and releases everything it holds. */
  async leave() {
    this.stop.abort();
    await this.beats;
    this.ended ||= "left";
    await call("DELETE", `${this.path}/tenures/${this.id}`);
  }
}

async function main([group, member]) {
  let stopped = false;
  for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => (stopped = true));

  const tenure = await Tenure.join(group, member, Number((process.env.TENURE_TTL ?? "30s").replace(/s$/, "")) * 1000);
  console.log("joined", tenure.id);
  await tenure.claim("devices", `device-of-${member}`);
  let fence = null;
  let before = "";
  while (!stopped) {
    await sleep(100);
    const verdict = tenure.verdict();
    if (verdict === "lost") {
      console.log("lost", tenure.ended || "not confirmed in time");
      return 3;
    }
    if (verdict === "uncertain") {
      if (before !== verdict) console.log("paused");
    } else if (fence === null) {
      try {
        fence = await tenure.acquire("report");
      } catch (error) {
        // It may have been granted; a repeated acquire under the same tenure returns it.
        if (error instanceof Refused) throw error;
      }
    } else {
      // Pass the token to the storage that is written to, so that it can reject late writers.
      console.log("work", fence);
    }
    before = verdict;
  }
  if (fence !== null) await tenure.release("report", fence);
  await tenure.leave();
  console.log("left");
  return 0;
}

if (import.meta.filename === process.argv[1] || process.argv[1]?.endsWith("client.mjs")) {
  try {
    process.exit(await main(process.argv.slice(2)));
  } catch (error) {
    console.error("failed:", error.message);
    process.exit(1);
  }
}
