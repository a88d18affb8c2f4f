import assert from "node:assert/strict";
import { test } from "node:test";

import { Stopwatch } from "../src/clock.js";
import { Tenure, TenureError } from "../src/index.js";
import { fake } from "./daemon.js";

// Also the answer to a claim.
const joined = { status: 201, body: { tenure: "m@1", member: "m", ttl_ms: 30_000, outcome: "new" } };
const now = { status: 200, body: {}, headers: { "tenure-store-time": "2026-01-01T00:00:00.000000Z" } };
const refusal = async (call: Promise<unknown>): Promise<TenureError> => {
  const error = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  assert.ok(error instanceof TenureError, `expected a TenureError, got ${error}`);
  return error;
};

test("a stopwatch follows the clock that advanced most", () => {
  let further = 0;
  const stopwatch = new Stopwatch(() => further);
  assert.ok(stopwatch.elapsed() < 60_000);
  further = 60_000;
  assert.ok(stopwatch.elapsed() >= 60_000);
});

test("a lost answer is repeated", async () => {
  const server = await fake({ status: 0 }, { status: 200, body: { key: "k", owner: "a", alive: true, new_field: 1 } });
  const owner = await new Tenure(server.url).group("g").owner("r", "k");
  assert.equal(owner?.key, "k");
  assert.equal(server.asked.length, 2);
  server.close();
});

test("a long retry_after is returned at once", async () => {
  const server = await fake({ status: 429, body: { code: "rate_limited", retry_after_ms: 5_000 } });
  const error = await refusal(new Tenure(server.url).group("g").join("m"));
  assert.deepEqual([error.code, error.retryAfterMs, error.outcome], ["rate_limited", 5_000, "unchanged"]);
  assert.equal(server.asked.length, 1);
  server.close();
});

test("after a lost answer a refusal leaves the outcome unknown", async () => {
  const server = await fake(now, { status: 0 }, { status: 429, body: { code: "rate_limited", retry_after_ms: 5_000 } });
  const error = await refusal(new Tenure(server.url).group("g").join("m"));
  assert.deepEqual([error.code, error.outcome], ["rate_limited", "unknown"]);
  server.close();
});

test("a refused connection changed nothing", async () => {
  const server = await fake(joined);
  server.close();
  const error = await refusal(new Tenure(server.url).group("g").join("m"));
  assert.deepEqual([error.code, error.status, error.outcome], ["unreachable", 0, "unchanged"]);
});

test("changes carry the store time at which they are given up", async () => {
  const server = await fake(now, { ...joined, headers: now.headers });
  const membership = await new Tenure(server.url, { token: "t" }).group("g").join("m");
  await membership.claim("r", "k");
  const [first, join, claim] = server.asked;
  assert.equal(first?.url, "/v1/now");
  assert.ok(join?.headers["tenure-not-after"]);
  assert.equal(claim?.headers.authorization, "Bearer t");
  const limit = Date.parse(String(claim?.headers["tenure-not-after"])) - Date.parse("2026-01-01T00:00:00Z");
  assert.ok(limit >= 1_000 && limit < 60_000, `${limit} ms`);
  await membership.leave();
  server.close();
});

test("names are encoded in paths", async () => {
  const server = await fake({ status: 404, body: { code: "not_found" } });
  assert.equal(await new Tenure(`${server.url}/`).group("g").session("a/b?c"), null);
  assert.equal(server.asked[0]?.url, "/v1/groups/g/sessions/a%2Fb%3Fc");
  server.close();
});

test("the package exports its entry point", async () => {
  const name = "tenure-client";
  assert.equal(typeof (await import(name)).Tenure, "function");
});
