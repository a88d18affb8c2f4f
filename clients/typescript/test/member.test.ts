import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { type MembershipEvent, TenureError } from "../src/index.js";
import { type Daemon, daemon, until } from "./daemon.js";

let running: Daemon;
before(async () => {
  running = await daemon();
});
after(() => running.stop());

const codeOf = (error: unknown) => (error instanceof TenureError ? error.code : String(error));

test("a member joins, holds and leaves", async () => {
  const group = running.store.group("basics");
  const membership = await group.join("a", { ttlMs: 10_000, labels: { zone: "x" } });
  assert.equal(membership.verdict(), "held");
  assert.equal((await membership.claim("devices", "cam")).outcome, "new");
  assert.equal((await group.owner("devices", "cam"))?.owner, "a");
  await membership.releaseClaim("devices", "cam");
  assert.equal(await group.owner("devices", "cam"), null);
  const lease = await membership.acquire("report");
  assert.equal(lease.verdict(), "held");
  assert.equal((await group.lease("report"))?.token, lease.token);
  assert.equal(await membership.acquire("report"), lease);
  await membership.leave();
  assert.equal(lease.verdict(), "lost");
  assert.ok(lease.signal.aborted);
  assert.equal(membership.verdict(), "lost");
  assert.equal(await membership.stopped, "left");
  assert.notEqual((await group.lease("report"))?.alive, true);
  assert.equal(await membership.claim("devices", "cam").catch(codeOf), "tenure_ended");
});

test("a member that is superseded stops and says so", async () => {
  const events: MembershipEvent[] = [];
  const group = running.store.group("names");
  const first = await group.join("a", { ttlMs: 6_000, onEvent: (event) => events.push(event) });
  const lease = await first.acquire("report");
  const second = await group.join("a", { ttlMs: 6_000 });
  assert.equal(await first.stopped, "superseded");
  assert.deepEqual(
    events.map(({ type }) => type),
    ["ended", "lease_lost"],
  );
  assert.equal(lease.verdict(), "lost");
  assert.equal(second.verdict(), "held");
  await second.leave();
  await first.leave();
});

test("a blocked event loop never reads as held", async () => {
  const events: MembershipEvent[] = [];
  const group = running.store.group("blocked");
  const membership = await group.join("a", { ttlMs: 3_000, onEvent: (event) => events.push(event) });
  const { tenure } = membership;
  const lease = await membership.acquire("report");
  await membership.claim("devices", "cam");
  // No timer and no answer can run meanwhile.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3_500);
  assert.equal(membership.verdict(), "lost");
  assert.equal(lease.verdict(), "lost");
  await until(() => membership.tenure !== tenure || membership.verdict() === "held");
  assert.equal(lease.verdict(), "lost");
  await until(async () => (await group.owner("devices", "cam"))?.tenure === membership.tenure);
  await membership.leave();
});

test("a session is attached, patched and detached", async () => {
  const group = running.store.group("sessions");
  const membership = await group.join("a");
  const attached = await membership.attach("s", "c1", { data: { name: "x" }, graceMs: 5_000 });
  assert.equal(attached.outcome, "created");
  await membership.patchSession("s", { name: null, page: 3 });
  assert.deepEqual((await group.session("s"))?.data, { page: 3 });
  await membership.detach("s", "c1");
  assert.equal((await group.session("s"))?.state, "disconnected");
  assert.equal(await group.session("none"), null);
  await membership.leave();
});

test("events are followed from an id", async () => {
  const group = running.store.group("followed");
  const membership = await group.join("a");
  const { next } = await group.events();
  const stop = new AbortController();
  const seen: string[] = [];
  const following = (async () => {
    for await (const item of group.follow({ after: next, signal: stop.signal })) {
      if (item.type === "event") seen.push(item.event.type);
      if (seen.length === 1) stop.abort();
    }
  })();
  await membership.leave();
  await following;
  assert.deepEqual(seen, ["left"]);
});

test("a provider is reserved and released", async () => {
  const roster = running.store.roster("desk");
  await roster.put("p1", { capacity: 1, displayName: "P" });
  assert.equal((await roster.online("p1")).online, true);
  await roster.heartbeat("p1");
  await until(async () => (await roster.availability()).available);
  const { engagement, provider } = await roster.reserve();
  assert.equal(provider, "p1");
  assert.equal(await roster.reserve().catch(codeOf), "none_available");
  await roster.moveEngagement(engagement, "ended");
  assert.equal((await roster.engagement(engagement))?.status, "ended");
  assert.equal((await roster.offline("p1")).online, false);
  assert.equal(await roster.provider("none"), null);
});
