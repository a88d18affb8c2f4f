#!/usr/bin/env node
// A member of a group in JavaScript, with nothing but Node's own fetch (18 and later).
//
// It joins, beats in the background, claims a device, asks for a lease, works for as long as that is certainly its own, and
// leaves on TERM or INT. Take the class Tenure into your program; main() is a worker that shows how it is used.
//
//   TENURE_STORE=http://127.0.0.1:7717 node client.mjs GROUP MEMBER
//
// Exit codes: 0 it left, 3 its tenure is over (start it again, and it joins anew), 1 anything else.
//
// Beats wait in the same queue as your code: whatever blocks the event loop for long blocks them, too. The verdict notices.

import { setTimeout as sleep } from "node:timers/promises";

const url = process.env.TENURE_STORE || process.env.TENURE_URL || "http://127.0.0.1:7717";
if (process.env.TENURE_URL) console.error("TENURE_URL is an old name: use TENURE_STORE");
const token = process.env.TENURE_TOKEN;

/** An answer of the daemon that says no: `code` is what a program looks at. */
class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `status ${status}`);
    this.status = status;
    this.code = problem.code;
    this.reason = problem.reason;
    this.retryAfter = problem.retry_after_ms ?? 500;
  }
}

/** One call. Any error but Refused means that nobody knows whether it took effect. */
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
    // A proxy in between has its own pages.
  }
  throw new Refused(answer.status, problem);
}

/** Time that goes on while the machine sleeps: the monotonic clock may not, and the wall clock may be set. */
class Stopwatch {
  constructor() {
    this.monotonic = performance.now();
    this.wall = Date.now();
  }
  elapsed() {
    return Math.max(performance.now() - this.monotonic, Date.now() - this.wall);
  }
}

/** This process as a member: from join() until it leaves, or until its tenure is over. */
export class Tenure {
  static async join(group, member, ttl = 30_000) {
    // A whole ttl counts from when the last call that was confirmed was *sent*: the store counts from later.
    const sent = new Stopwatch();
    const path = `/v1/groups/${group}`;
    const joined = await call("POST", `${path}/members`, { member, ttl_ms: ttl });
    const tenure = new Tenure();
    Object.assign(tenure, { path, ttl, margin: ttl / 12, id: joined.tenure, confirmed: sent, ended: "" });
    tenure.stop = new AbortController();
    tenure.beats = tenure.#beat();
    return tenure;
  }

  /** held: act. uncertain: pause. lost: over, for ever. Asks nobody. */
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
        // An answer that comes after our time is over revives nothing.
        if (this.verdict() === "lost") return;
        this.confirmed = sent;
        pause = this.ttl / 3;
      } catch (error) {
        if (error.code === "tenure_ended") {
          this.ended = error.reason;
          return;
        }
        pause = this.ttl / 12; // Not answered is not refused: try again, sooner.
      }
    }
  }

  /** Says that the key is ours. Whoever had it has it no more. */
  claim(registry, key) {
    return call("PUT", `${this.path}/registries/${registry}/claims/${key}`, { tenure: this.id });
  }

  /** The fencing token when the lease is ours now, null while somebody else has it. */
  async acquire(lease) {
    try {
      return (await call("POST", `${this.path}/leases/${lease}/acquire`, { tenure: this.id })).token;
    } catch (error) {
      if (error.code === "lease_held" || error.code === "unsettled") return null;
      throw error;
    }
  }

  /** Gives the lease up, after the work has ended. */
  release(lease, token) {
    return call("POST", `${this.path}/leases/${lease}/release`, { tenure: this.id, token });
  }

  /** Ends the tenure; whatever it still holds is released. */
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
        // Perhaps it is ours by now: asked again under the same tenure, it says so.
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
