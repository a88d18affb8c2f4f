// What happens to a client in a real process: lapses, dead connections, calls that are given up, a daemon that is away.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createPlainServer } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { rootCertificates } from "node:tls";

import { type Membership, type MembershipEvent, Tenure, TenureError } from "../src/index.js";
import { certificate, key } from "./certificate.js";
import { type Daemon, daemon, until } from "./daemon.js";
import { balancer, Network, silence } from "./network.js";

let running: Daemon;
before(async () => {
  running = await daemon();
});
after(() => running.stop());

const codeOf = (error: unknown) => (error instanceof TenureError ? error.code : String(error));
const away = () => new TypeError("fetch failed", { cause: { code: "ECONNREFUSED" } });

function distant() {
  const network = new Network();
  return { network, store: new Tenure(running.url, { fetch: network.fetch }) };
}

async function lapse(network: Network, group: string) {
  network.isSilent = true;
  const living = async () => {
    for await (const _ of running.store.group(group).members()) return true;
    return false;
  };
  await until(async () => !(await living()));
}

const count = async (group: string) => {
  const answer = await fetch(`${running.url}/v1/groups/${group}/sessions-stats`);
  return (await answer.json()) as { active: number; disconnected: number };
};

test("300 sessions come back within a grace of 3 s at a round trip of 20 ms", async (t) => {
  const { network, store } = distant();
  const membership = await store.group("sockets").join("a", { ttlMs: 3_000 });
  t.after(() => membership.leave());
  const names = [...Array(300).keys()].map((n) => `s${n}`);
  for (let at = 0; at < names.length; at += 20)
    await Promise.all(names.slice(at, at + 20).map((name) => membership.attach(name, "c", { graceMs: 3_000 })));
  network.delayMs = 20;
  await lapse(network, "sockets");
  await until(async () => (await count("sockets")).disconnected === names.length);
  network.isSilent = false;
  await until(async () => (await count("sockets")).disconnected === 0);
  const { active } = await count("sockets");
  t.diagnostic(`${active} of ${names.length} are back`);
  assert.equal(active, names.length);
  await membership.detach("s0", "c");
});

test("what is lost by a lapse is reported", async () => {
  const { network, store } = distant();
  const events: MembershipEvent[] = [];
  const onEvent = (event: MembershipEvent) => events.push(event);
  const membership = await store.group("losses").join("a", { ttlMs: 1_000, onEvent });
  await membership.claim("r", "k");
  await membership.attach("s", "c", { graceMs: 1_000 });
  await lapse(network, "losses");
  const other = await running.store.group("losses").join("b");
  await other.claim("r", "k");
  await until(async () => (await running.store.group("losses").session("s")) === null);
  network.isSilent = false;
  await until(() => events.some(({ type }) => type === "claim_lost"));
  await until(() => events.some(({ type }) => type === "session_lost"));
  assert.deepEqual(
    events.filter(({ type }) => type === "claim_lost"),
    [{ type: "claim_lost", registry: "r", key: "k", owner: "b" }],
  );
  assert.deepEqual(
    events.filter(({ type }) => type === "session_lost"),
    [{ type: "session_lost", session: "s", connection: "c", reason: "gone" }],
  );
  await Promise.all([membership.leave(), other.leave()]);
});

test("a claim that another member takes is reported, and many are claimed in one call", async () => {
  const events: MembershipEvent[] = [];
  const group = running.store.group("taken");
  const onEvent = (event: MembershipEvent) => events.push(event);
  const membership = await group.join("a", { ttlMs: 1_000, checkClaimsMs: 1, onEvent });
  const many = await membership.claimMany("r", ["k", "l"]);
  assert.deepEqual(
    many.map(({ key, outcome }) => [key, outcome]),
    [
      ["k", "new"],
      ["l", "new"],
    ],
  );
  const other = await group.join("b");
  const [held, fresh] = await other.claimMany("r", ["l", "n"]);
  assert.deepEqual([held?.outcome, held?.owner, fresh?.outcome], ["held", "a", "new"]);
  await other.claim("r", "k");
  await until(() => events.length > 0);
  assert.deepEqual(events, [{ type: "claim_lost", registry: "r", key: "k", owner: "b" }]);
  await Promise.all([membership.leave(), other.leave()]);
});

test("dead idle connections cost no attempt", async () => {
  const between = await balancer(running.url);
  const group = new Tenure(between.url).group("dead");
  const membership = await group.join("a");
  await Promise.all([...Array(40).keys()].map(() => group.member("a")));
  assert.ok(between.drop() > 3);
  // An attempt that fails pauses for 62 ms at least.
  const began = performance.now();
  for (let n = 0; n < 40; n++) {
    between.drop();
    assert.equal((await group.member("a"))?.member, "a");
  }
  const passed = performance.now() - began;
  assert.ok(passed < 2_000, `${passed} ms`);
  between.drop();
  const [lease, claimed] = await Promise.all([membership.acquire("l"), membership.claim("r", "k")]);
  assert.deepEqual([lease.verdict(), claimed.outcome], ["held", "new"]);
  await membership.leave();
  between.close();
});

test("what a call that was given up is granted goes back", async (t) => {
  type GiveUp = (membership: Membership, store: Tenure, signal: AbortSignal) => Promise<unknown>;
  const cases: [string, string, string, GiveUp, (group: ReturnType<Tenure["group"]>) => Promise<boolean>][] = [
    [
      "attach",
      "PUT",
      "/sessions/s",
      (m, _, signal) => m.attach("s", "c", { signal }),
      async (g) => (await g.session("s"))?.connections === 0,
    ],
    [
      "claim",
      "PUT",
      "/claims/k",
      (m, _, signal) => m.claim("r", "k", { signal }),
      async (g) => (await g.owner("r", "k")) === null,
    ],
    [
      "claimMany",
      "POST",
      "/claims",
      (m, _, signal) => m.claimMany("r", ["k"], { signal }),
      async (g) => (await g.owner("r", "k")) === null,
    ],
    [
      "acquire",
      "POST",
      "/acquire",
      (m, _, signal) => m.acquire("l", { signal }),
      async (g) => (await g.lease("l")) === null,
    ],
    [
      "join",
      "POST",
      "/members",
      (m, store, signal) => store.group(m.group).join("b", { signal, ttlMs: 100_000 }),
      async (g) => (await g.member("b")) === null,
    ],
  ];
  for (const [name, method, path, call, isBack] of cases) {
    await t.test(name, async () => {
      const { network, store } = distant();
      const group = `given-up-${name}`;
      const membership = await store.group(group).join("a", { ttlMs: 100_000 });
      const stop = new AbortController();
      const answered = new AbortController();
      network.rule = (url, init) => {
        if (init.method !== method || !url.pathname.endsWith(path)) return undefined;
        network.rule = undefined;
        const acted = fetch(url, { ...init, signal: null });
        return acted.then((answer) => {
          stop.abort(new Error("enough"));
          return Promise.race([silence(init.signal), silence(answered.signal).catch(() => answer)]);
        });
      };
      const error = await call(membership, store, stop.signal).catch((error: unknown) => error);
      assert.ok(error instanceof TenureError && error.outcome === "unknown", String(error));
      assert.equal((error.cause as Error).message, "enough");
      answered.abort();
      await until(() => isBack(running.store.group(group)));
      assert.equal(membership.verdict(), "held");
      await membership.leave();
    });
  }
});

test("a call that was given up keeps what was held before", async () => {
  const { network, store } = distant();
  const membership = await store.group("kept").join("a", { ttlMs: 100_000 });
  await membership.claim("r", "k");
  await membership.attach("s", "c");
  const stop = new AbortController();
  network.rule = (url, init) => {
    const acted = fetch(url, { ...init, signal: null });
    return acted.then((answer) => {
      stop.abort();
      return answer;
    });
  };
  const calls = [
    membership.claim("r", "k", { signal: stop.signal }),
    membership.attach("s", "c", { signal: stop.signal }),
  ];
  for (const result of await Promise.allSettled(calls)) assert.equal(result.status, "rejected");
  network.rule = undefined;
  // Their turn is after the calls that were given up.
  assert.equal((await membership.claim("r", "k")).outcome, "kept");
  await membership.attach("s", "d");
  await membership.detach("s", "d");
  assert.equal((await store.group("kept").session("s"))?.connections, 1);
  await membership.leave();
});

test("a wait is made of parts, and lasts as long as was asked", async () => {
  let passed = 0;
  const asked: number[] = [];
  const { network } = distant();
  const json = (status: number, body: unknown) =>
    Promise.resolve(
      new Response(JSON.stringify(body), { status, headers: { "content-type": "application/problem+json" } }),
    );
  network.rule = (url, init) => {
    if (url.pathname.endsWith("/members")) return json(201, { tenure: "a@1", member: "a", ttl_ms: 900_000 });
    if (!url.pathname.endsWith("/acquire")) return json(200, { leases: [], revision: 1 });
    const { wait_ms } = JSON.parse(String(init.body));
    asked.push(wait_ms);
    // The daemon's minute, or that of a proxy that cuts requests after 20 s.
    passed += asked.length < 3 ? wait_ms : Math.min(wait_ms, 20_000);
    if (asked.length >= 3 && wait_ms > 20_000) return Promise.reject(new TypeError("fetch failed"));
    return json(409, { code: "lease_held", holder: "b" });
  };
  const store = new Tenure(running.url, { fetch: network.fetch, clock: () => passed });
  const membership = await store.group("g").join("a");
  const error = await membership.acquire("l", { waitMs: 200_000 }).catch((error: unknown) => error);
  assert.equal(codeOf(error), "lease_held");
  assert.ok(passed >= 199_000 && passed < 201_000, `${passed} ms`);
  assert.deepEqual(
    asked.map((ms) => Math.round(ms / 1_000)),
    [60, 60, 60, 60, 40, 20].slice(0, asked.length),
  );
  assert.ok(asked.length >= 5, String(asked));
  await membership.leave();
});

test("replaced TLS files count for new connections", async (t) => {
  const server = createServer({ cert: certificate, key }, (_, response) => {
    response.end('{"tenure": "a@1", "member": "a"}');
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const folder = mkdtempSync(join(tmpdir(), "tenure-ts-"));
  t.after(() => {
    server.close();
    server.closeAllConnections();
    rmSync(folder, { recursive: true });
  });
  const ca = join(folder, "ca.pem");
  writeFileSync(ca, String(rootCertificates[0]));
  const group = new Tenure(`https://127.0.0.1:${(server.address() as AddressInfo).port}?tls_ca=${ca}`).group("g");
  assert.equal(await group.member("a").catch(codeOf), "unreachable");
  writeFileSync(ca, certificate);
  await group.member("a");
  writeFileSync(ca, "-----BEGIN CERT");
  server.closeAllConnections();
  await group.member("a");
});

test("the store, its authority and the token come from the environment", async (t) => {
  const tokens: unknown[] = [];
  const server = createServer({ cert: certificate, key }, (request, response) => {
    tokens.push(request.headers.authorization);
    response.end('{"tenure": "a@1", "member": "a"}');
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const folder = mkdtempSync(join(tmpdir(), "tenure-ts-"));
  const before = { ...process.env };
  t.after(() => {
    process.env = before;
    server.close();
    server.closeAllConnections();
    rmSync(folder, { recursive: true });
  });
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  writeFileSync(join(folder, "ca.pem"), certificate);
  writeFileSync(join(folder, "token"), "first\n");
  process.env = { ...before, TENURE_STORE: `${url}?tls_ca=${folder}/ca.pem`, TENURE_TOKEN_FILE: `${folder}/token` };
  const store = new Tenure();
  await store.group("g").member("a");
  writeFileSync(join(folder, "token"), "replaced\n");
  await store.group("g").member("a");
  assert.deepEqual(tokens, ["Bearer first", "Bearer replaced"]);
  assert.equal(await new Tenure(url).group("g").member("a").catch(codeOf), "unreachable");
  assert.equal(await new Tenure(`${url}?tls_ca=/nowhere`).group("g").member("a").catch(codeOf), "invalid");
  for (const bad of [
    "host:1",
    "ftp://host",
    "http://u:p@host",
    "http://host?tls_ca=x",
    "https://host?ca=x",
    "https://host?tls_ca=",
  ])
    assert.throws(
      () => new Tenure(bad),
      (error) => codeOf(error) === "invalid",
      bad,
    );
});

test("a join waits for a daemon that comes up later", async () => {
  const { network, store } = distant();
  let refusals = 5;
  network.rule = () => (refusals-- > 0 ? Promise.reject(away()) : undefined);
  const membership = await store.group("later").join("a", { patienceMs: 60_000 });
  assert.equal(membership.verdict(), "held");
  await membership.leave();
  refusals = 1_000;
  const began = performance.now();
  assert.equal(await store.group("later").join("b", { patienceMs: 1_000 }).catch(codeOf), "unreachable");
  assert.ok(performance.now() - began >= 1_000);
  refusals = 0;
  assert.equal(await store.group("later").join("no name", { patienceMs: 3_600_000 }).catch(codeOf), "invalid");
});

test("a member without a name has one of its own", async () => {
  const group = running.store.group("nameless");
  const [one, other] = await Promise.all([group.join(), group.join()]);
  assert.match(one.member, /^[A-Za-z0-9._:-]+-\d{10,}-[0-9a-f]{8}$/);
  assert.notEqual(one.member, other.member);
  await Promise.all([one.leave(), other.leave()]);
});

test("leaving a block replaces no error of it", async () => {
  const body = async (fails: boolean) => {
    const { network, store } = distant();
    await using membership = await store.group(`blocks-${fails}`).join("a");
    await using lease = await membership.acquire("l");
    network.isSilent = true;
    if (fails) throw new Error(`mine, with ${lease.token}`);
    return lease;
  };
  await assert.rejects(body(true), /^Error: mine/);
  assert.equal((await body(false)).verdict(), "lost");
  const group = running.store.group("blocks");
  {
    await using membership = await group.join("b");
    assert.equal(membership.verdict(), "held");
  }
  assert.equal(await group.member("b"), null);
});

const strange: [number, string][] = [
  [200, ""],
  [200, "null"],
  [200, "[]"],
  [200, "7"],
  [200, "{}"],
  [200, '{"tenure": "a@1", "tok'],
  [200, "<html>welcome</html>"],
  [
    200,
    '{"outcome": 1, "token": "7", "tenure": [], "ttl_ms": {}, "results": 5, "epoch": "x", "events": 7, "members": {}}',
  ],
  [
    200,
    '{"outcome": "granted", "token": -1, "tenure": "a@1", "ttl_ms": -5, "results": [null], "epoch": -1, "events": [7]}',
  ],
  [
    200,
    '{"outcome": 7, "token": 1e400, "tenure": "a@1", "ttl_ms": 1e300, "results": [{}], "members": [null], "next": {}}',
  ],
];

test("strange answers are errors of this package", async () => {
  const { network, store } = distant();
  const membership = await store.group("strange").join("a", { ttlMs: 100_000 });
  const group = store.group("strange");
  const calls: [string, () => Promise<unknown>][] = [
    ["/members", () => group.join("b")],
    ["/acquire", () => membership.acquire("l")],
    ["/r/claims", () => membership.claimMany("r", ["k"])],
    ["/s", () => membership.attach("s", "c")],
    ["/members", () => group.members().next()],
    ["/events", () => group.events()],
  ];
  for (const [path, call] of calls) {
    for (const [status, body] of strange) {
      network.rule = ({ pathname }) =>
        pathname.endsWith(path) ? Promise.resolve(new Response(body, { status })) : undefined;
      const error = await call().then(
        (got) => got,
        (error: unknown) => error,
      );
      assert.ok(error instanceof TenureError && error.code === "unreachable", `${path} ${body}: ${error}`);
    }
  }
  network.rule = undefined;
  assert.equal(membership.verdict(), "held");
  await membership.leave();
});

test("strange answers do not end the beats", async () => {
  const { network, store } = distant();
  const events: MembershipEvent[] = [];
  const membership = await store.group("beats").join("a", { ttlMs: 1_000, onEvent: (event) => events.push(event) });
  const answers: [number, string][] = [
    ...strange,
    [410, '{"code": "tenure_ended", "reason": 5}'],
    [410, '{"code": "tenure_ended", "reason": {"a": []}}'],
    [410, '{"code": 7, "reason": "lapsed"}'],
    [410, "[]"],
    [429, '{"code": "rate_limited", "retry_after_ms": 1e300}'],
    [503, '{"code": "store_unavailable", "retry_after_ms": "soon"}'],
    [200, '{"expires_in_ms": 1e400}'],
    [200, '{"expires_in_ms": 5, "revision": {}}'],
  ];
  let given = 0;
  network.rule = ({ pathname }) => {
    if (!pathname.endsWith("/beat")) return undefined;
    const [status, body] = answers[given++ % answers.length] ?? [200, ""];
    return Promise.resolve(new Response(body, { status }));
  };
  await until(() => given >= 2 * answers.length);
  network.rule = undefined;
  await until(() => membership.verdict() === "held");
  assert.ok(
    events.every((event) => event.type !== "ended" || event.reason === "lapsed"),
    JSON.stringify(events),
  );
  await membership.leave();
});

test("pages without an end are an error, and a follower reads on after strange answers", async () => {
  const { network, store } = distant();
  const group = store.group("pages");
  const membership = await group.join("a");
  network.rule = ({ pathname }) =>
    pathname.endsWith("/members") ? Promise.resolve(new Response('{"members": [], "next": "again"}')) : undefined;
  assert.equal(await group.members().next().catch(codeOf), "unreachable");
  let given = 0;
  network.rule = ({ pathname }) => {
    const body = strange[given++ % strange.length]?.[1] ?? "";
    return given <= strange.length && pathname.endsWith("/events") ? Promise.resolve(new Response(body)) : undefined;
  };
  const { value } = await group.follow({}).next();
  assert.equal(value?.type === "event" && value.event.member, "a");
  network.rule = undefined;
  await membership.leave();
});

test("a follower that is stopped closes its connection", async () => {
  // It keeps the request until its connection closes.
  let asked = 0;
  let closed = 0;
  const server = createPlainServer((request) => {
    asked++;
    request.socket.on("close", () => closed++);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = new AbortController();
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const following = new Tenure(url).group("g").follow({ signal: stop.signal }).next();
  await until(() => asked > 0);
  stop.abort();
  assert.deepEqual(await following, { done: true, value: undefined });
  await until(() => closed === asked);
  server.close();
});
